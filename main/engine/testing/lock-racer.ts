import { lockDataFolder } from '../process/lock.ts';

/** One contender: on a line of stdin it tries the lock of argv[2], says "won" or "lost", and lives until stdin ends. */
process.stdout.write('ready\n');
process.stdin.once('data', () => {
  try {
    lockDataFolder(process.argv[2] ?? '');
    process.stdout.write('won\n');
  } catch (error) {
    process.stdout.write(`lost ${error instanceof Error ? error.message : String(error)}\n`);
  }
});
