import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { seededRandom } from '../common/base/seeded-random.ts';
import { openStore } from './store/store.ts';
import { writeTaskLibrary } from './testing/scripted-world.ts';

const entry = fileURLToPath(new URL('./testing/scripted-cycle-main.ts', import.meta.url));

/** Runs the cycle process; kills it with -9 after `killAfterMs` when given. Resolves with its exit code, null when killed. */
function runProcess(data: string, library: string, killAfterMs: number | null): Promise<number | null> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', entry, data, library], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    child.stdout.on('data', (text: Buffer) => {
      if (killAfterMs !== null && text.toString().startsWith('started'))
        setTimeout(() => child.kill('SIGKILL'), killAfterMs);
    });
    child.on('exit', (code) => resolve(code));
  });
}

/** Unit keys: what was done, by key columns only, with how often it was done. */
function unitsOf(data: string): string[] {
  const store = openStore(data);
  const experimentId = store.experiments.byName('cycle')?.experimentId ?? '';
  const key = { experimentId, cycle: 1 };
  const units: string[] = [];
  for (const stage of ['search', 'collect'] as const)
    for (const episode of store.episodes.ofStage({ ...key, stage })) {
      const settled = store.episodes
        .attempts(episode.episodeId)
        .filter((attempt) => attempt.outcome === 'completed' || attempt.outcome === 'halted');
      units.push(
        `episode ${stage} ${episode.taskId} v${episode.workflowVersion} r${episode.replicate} seed ${episode.seed}: ${settled.length}`,
      );
    }
  const nameOf = (episodeId: string) => {
    const episode = store.episodes.byId(episodeId);
    return `${episode?.stage}/v${episode?.workflowVersion}/r${episode?.replicate}`;
  };
  for (const stage of ['search', 'rank'] as const)
    for (const row of store.judgments.ofStage({ ...key, stage })) {
      const presentations = store.judgments.presentations(row.judgmentId).map((p) => `${p.shownAsA}:${p.verdict}`);
      units.push(
        `judgment ${row.purpose} ${row.taskId} ${nameOf(row.firstEpisodeId)} ${nameOf(row.secondEpisodeId)}: ${presentations.sort().join(' ')} -> ${row.result}`,
      );
    }
  for (const task of store.tasks.of(experimentId)) {
    const of = { ...key, taskId: task.taskId };
    units.push(...store.workflows.ofTask(of).map((row) => `version ${task.taskId} v${row.version} ${row.blockHash}`));
    units.push(`champion ${task.taskId} v${store.workflows.champion(of)?.version}`);
    units.push(
      ...store.tournaments
        .matches(of)
        .map(
          (row) =>
            `match ${task.taskId} ${row.matchIndex} ${nameOf(row.firstEpisodeId)} ${nameOf(row.secondEpisodeId)}`,
        ),
    );
  }
  units.push(
    ...store.tournaments
      .entries(key)
      .map((row) => `selection ${row.taskId} ${nameOf(row.episodeId)} ${row.rank} ${row.decision}`),
  );
  store.close();
  return units.sort();
}

it('ends with the same units after kill -9 at 20 random moments, none lost and none done twice', async () => {
  const library = writeTaskLibrary(mkdtempSync(join(tmpdir(), 'mass-kill-tasks-')));
  const whole = mkdtempSync(join(tmpdir(), 'mass-kill-whole-'));
  const killed = mkdtempSync(join(tmpdir(), 'mass-kill-'));
  try {
    expect(await runProcess(whole, library, null)).toBe(0);
    const random = seededRandom(20);
    for (let kill = 0; kill < 20; kill++) {
      const code = await runProcess(killed, library, Math.floor(20 + random() * 400));
      if (code === 0) continue; // it finished before the blow fell; later ones hit a finished cycle
    }
    expect(await runProcess(killed, library, null)).toBe(0);
    expect(unitsOf(killed)).toEqual(unitsOf(whole));
  } finally {
    for (const folder of [library, whole, killed]) rmSync(folder, { recursive: true, force: true });
  }
});
