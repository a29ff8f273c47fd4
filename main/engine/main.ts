import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { projectRoot } from '../node/project-root.ts';
import { createEngine } from './engine.ts';
import { runEngineProcess } from './process/run-engine.ts';

const { version } = z
  .object({ version: z.string() })
  .parse(JSON.parse(readFileSync(join(projectRoot, 'package.json'), 'utf8')));

await runEngineProcess(process.argv.slice(2), { version, createEngine });
