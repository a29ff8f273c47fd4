import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { trainerProtocol } from '../../main/common/protocol/trainer.ts';
import { trainerProtocolSchema } from '../../main/common/protocol/trainer-schema.ts';

const schema = trainerProtocolSchema();

interface Schema {
  /** a list: null is allowed too */
  readonly type?: string | readonly string[];
  readonly const?: string;
  readonly enum?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly oneOf?: readonly Schema[];
  readonly items?: Schema;
  readonly prefixItems?: readonly Schema[];
  readonly minimum?: number;
  readonly exclusiveMinimum?: number;
  readonly maximum?: number;
}
const defs = schema.$defs as { toTrainer: Schema };
const commands = defs.toTrainer.oneOf ?? [];

/** A schema in the words of native/trainer/testing/describe_protocol.py. */
function form(of: Schema, limited = false): unknown {
  if (of.properties)
    return Object.fromEntries(Object.entries(of.properties).map(([name, field]) => [name, form(field, true)]));
  if (of.enum) return { oneOf: [...of.enum].sort() };
  if (of.oneOf) return kinds(of.oneOf);
  if (Array.isArray(of.type)) return { optional: form({ ...of, type: of.type[0] as string }) };
  if (of.prefixItems) return { tuple: of.prefixItems.map((item) => form(item)) };
  if (of.items) return [form(of.items)];
  const type = of.type === 'string' ? 'text' : String(of.type);
  return limited ? type + limits(of) : type;
}

/** Objects that differ in their kind alone are one class in Python. */
function kinds(variants: readonly Schema[]): unknown {
  const fields = variants.map((variant) => form({ properties: { ...variant.properties, kind: {} } }));
  for (const other of fields) expect(other).toEqual(fields[0]);
  const kind = { oneOf: variants.map(({ properties }) => properties?.kind?.const ?? '').sort() };
  return { ...(fields[0] as object), kind };
}

function limits({ type, minimum, exclusiveMinimum, maximum }: Schema): string {
  const safe = (value: number | undefined): boolean =>
    value === undefined || Math.abs(value) === Number.MAX_SAFE_INTEGER;
  const least = type === 'integer' && exclusiveMinimum !== undefined ? exclusiveMinimum + 1 : minimum;
  const low = !safe(least) ? ` >= ${least}` : exclusiveMinimum !== undefined ? ` > ${exclusiveMinimum}` : '';
  return low + (safe(maximum) ? '' : ` <= ${maximum}`);
}

describe('the protocol of the trainer', () => {
  it('is the file that other languages read (after a change: vitest -u resources/trainer)', async () => {
    await expect(`${JSON.stringify(schema, null, 2)}\n`).toMatchFileSnapshot('protocol.schema.json');
  });

  it('has the same commands, fields, types and limits in Python', () => {
    const printed = execFileSync('python3', ['-m', 'trainer.testing.describe_protocol'], {
      cwd: fileURLToPath(new URL('../../native', import.meta.url)),
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1' },
    });
    const orders = commands.filter(({ properties }) => properties?.order);
    const controls = commands.filter(({ properties }) => !properties?.order);
    expect(JSON.parse(printed.toString())).toEqual({
      protocol: trainerProtocol,
      controls: controls.map(({ properties }) => properties?.kind?.const).sort(),
      orders: Object.fromEntries(
        orders.map(({ properties }) => [properties?.kind?.const, form(properties?.order ?? {})]),
      ),
    });
  });
});
