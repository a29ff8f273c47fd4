import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { silentLogger } from '../main/common/base/logger.ts';
import { createEngine } from '../main/engine/engine.ts';
import { scriptedWorld } from '../main/engine/testing/scripted-world.ts';
import { localWorld } from '../main/engine/world.ts';
import { recordEpisodes } from './render-record.ts';

/**
 * The render stage over recorded episodes with the real SmolLM2 vocabulary: tokens a second and the largest memory of the
 * engine and of its vocabulary process, for a small and a large set. Recording and rendering are processes of their own.
 */
interface Rendered {
  readonly windows: number;
  readonly tokens: number;
  readonly labelledTokens: number;
  readonly seconds: number;
  readonly tokensPerSecond: number;
  /** largest resident memory since the start of each process; MiB */
  readonly engineMiB: number;
  readonly vocabularyMiB: number;
}

const sizes = [250_000, 1_000_000];
const [mode, folder, size] = process.argv.slice(2);
if (mode === 'record') await recordEpisodes(folder ?? '', Number(size));
else if (mode === 'render') process.send?.(await render(folder ?? ''));
else await measureAll();

async function measureAll(): Promise<void> {
  const results: Rendered[] = [];
  for (const tokens of sizes) {
    const place = mkdtempSync(join(tmpdir(), 'mass-bench-render-'));
    try {
      console.error(`Recording ${tokens.toLocaleString('en-US')} tokens of episodes ...`);
      await child(['record', place, String(tokens)]);
      const result = (await child(['render', place])) as Rendered;
      console.error(
        `${result.tokens} tokens in ${result.seconds} s; engine ${result.engineMiB} MiB, vocabulary ${result.vocabularyMiB} MiB`,
      );
      results.push(result);
    } finally {
      rmSync(place, { recursive: true });
    }
  }
  const model = 'SmolLM2-135M-Instruct, vocabulary only';
  console.log(JSON.stringify({ bench: 'render', model, cores: availableParallelism(), results }, null, 2));
}

/** Runs this file in another process; what it sent. */
function child(args: readonly string[]): Promise<unknown> {
  return new Promise((resolve, reject) => {
    let sent: unknown;
    const process_: ChildProcess = fork(fileURLToPath(import.meta.url), [...args], {
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    process_.on('message', (message) => {
      sent = message;
    });
    process_.once('error', reject);
    process_.once('exit', (code) => (code === 0 ? resolve(sent) : reject(new Error(`${args[0]} ended with ${code}`))));
  });
}

async function render(dataFolder: string): Promise<Rendered> {
  let vocabularyKiB = 0;
  const world = localWorld(dataFolder, silentLogger);
  const engine = await createEngine({
    dataFolder,
    version: 'bench',
    logger: silentLogger,
    world: {
      ...scriptedWorld(),
      openVocabulary: async (target, store) => {
        const vocabulary = await world.openVocabulary(target, store);
        const dispose = () => {
          vocabularyKiB = Math.max(...childPids().map(largestKiB));
          return vocabulary.dispose();
        };
        return { ...vocabulary, dispose };
      },
    },
  });
  const context = { signal: new AbortController().signal, progress: () => undefined };
  const started = performance.now();
  const { runId } = await engine.handlers['run.start']({ name: 'bench', stages: ['render'] }, context);
  const end = await engine.handlers['run.wait']({ runId }, context);
  const seconds = (performance.now() - started) / 1000;
  if (end.state !== 'done') throw new Error(end.message);
  const { total } = await engine.handlers['windows.list']({ name: 'bench' }, context);
  await engine.shutdown('now');
  return {
    ...total,
    seconds: Number(seconds.toFixed(1)),
    tokensPerSecond: Math.round(total.tokens / seconds),
    engineMiB: Math.round(largestKiB(process.pid) / 1024),
    vocabularyMiB: Math.round(vocabularyKiB / 1024),
  };
}

function childPids(): number[] {
  return readdirSync('/proc/self/task').flatMap((task) =>
    readFileSync(`/proc/self/task/${task}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
  );
}

function largestKiB(pid: number): number {
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
}
