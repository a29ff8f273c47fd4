import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/** `npm run bench -- NAME`: measurements, JSON on stdout, lines for people on stderr. Nothing here is a test. */
const benches: Readonly<Record<string, { file: string; env: Readonly<Record<string, string>> }>> = {
  // As the inference process is started: one libuv worker about doubles decoding on a CPU.
  inference: { file: './inference.ts', env: { UV_THREADPOOL_SIZE: '1' } },
  episodes: { file: './episode-overhead.ts', env: {} },
  train: { file: './training.ts', env: {} },
  render: { file: './render.ts', env: {} },
};

const name = process.argv[2] ?? '';
const bench = benches[name];
if (bench === undefined) {
  console.error(`Name what to measure: ${Object.keys(benches).join(', ')}.`);
  process.exitCode = 2;
} else {
  const args = ['--disable-warning=ExperimentalWarning', fileURLToPath(new URL(bench.file, import.meta.url))];
  const child = spawn(process.execPath, [...args, ...process.argv.slice(3)], {
    stdio: 'inherit',
    env: { ...process.env, ...bench.env },
  });
  child.on('exit', (code) => {
    process.exitCode = code ?? 1;
  });
}
