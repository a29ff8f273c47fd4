import { randomInt } from 'node:crypto';

const alphabet = '0123456789abcdefghjkmnpqrstvwxyz';

/** A random row id such as `at_7m2k...`: 60 bits after the prefix. Rows are found by key columns, never by id text. */
export function newId(prefix: string): string {
  let out = '';
  for (let i = 0; i < 12; i++) out += alphabet[randomInt(alphabet.length)];
  return `${prefix}_${out}`;
}
