import { defineConfig } from 'vitest/config';

// Two named sets: `unit` (pure, scripted model, real SQLite and sandbox) and `model` (needs the real small model).
// Forks, not threads: tests start processes and native addons.
export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 120_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['main/**/*.test.ts', 'resources/**/*.test.ts'],
          exclude: ['**/*.model.test.ts', '**/*.kill.test.ts'],
        },
      },
      {
        extends: true,
        test: { name: 'model', include: ['main/**/*.model.test.ts'], testTimeout: 300_000, fileParallelism: false },
      },
      {
        extends: true,
        test: { name: 'kill', include: ['main/**/*.kill.test.ts'], testTimeout: 900_000, fileParallelism: false },
      },
    ],
  },
});
