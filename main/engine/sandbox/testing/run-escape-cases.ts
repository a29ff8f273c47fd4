// Runs every case as whoever starts it (argument: a folder it owns) and prints one JSON line for each.
import fs from 'node:fs';
import path from 'node:path';
import { silentLogger } from '../../../common/base/logger.ts';
import { createSandbox } from '../detect.ts';
import { ESCAPE_CASES, SECRET } from './escape-cases.ts';

const [folder = ''] = process.argv.slice(2);
fs.writeFileSync(path.join(folder, 'secret'), SECRET);
process.env.MASS_TEST_SECRET = SECRET;
const sandbox = await createSandbox('bubblewrap', silentLogger);
for (const { name, run } of ESCAPE_CASES) {
  let failure: string | null = null;
  try {
    await run({ sandbox, folder });
  } catch (error) {
    failure = error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
  process.stdout.write(`${JSON.stringify({ name, failure, uid: process.getuid?.() })}\n`);
}
