import { resolve } from 'node:path';
import Database from 'better-sqlite3';

/**
 * Time of recorded episodes that was spent neither in the model nor in tools: rendering, HTTP, recording, the engine.
 * Reads a data folder (default: the demo's). In the team runtime an episode's threads take turns, so model and tool
 * times of one episode never overlap; `delegate` is the worker's whole thread and is left out.
 */
interface EpisodeTimes {
  readonly wall: number;
  readonly model: number;
  readonly tools: number;
}

const folder = resolve(process.argv[2] ?? '.mass');
const db = new Database(`${folder}/mass.sqlite`, { readonly: true, fileMustExist: true });
const rows = db
  .prepare<[], EpisodeTimes>(
    `SELECT a.endedAt - a.startedAt AS wall,
       ifnull((SELECT sum(c.queueMs + c.prefillMs + c.decodeMs) FROM completions c JOIN threads t USING (threadId)
               WHERE t.ownerKind = 'attempt' AND t.ownerId = a.attemptId), 0) AS model,
       ifnull((SELECT sum(k.durationMs) FROM tool_calls k JOIN threads t USING (threadId)
               WHERE t.ownerKind = 'attempt' AND t.ownerId = a.attemptId AND k.name <> 'delegate'), 0) AS tools
     FROM attempts a WHERE a.outcome IN ('completed', 'halted')`,
  )
  .all();
db.close();
const sum = (pick: (row: EpisodeTimes) => number): number => rows.reduce((total, row) => total + pick(row), 0);
const outside = rows.map(({ wall, model, tools }) => wall - model - tools).sort((a, b) => a - b);
const round = (value: number, digits = 1): number => Number(value.toFixed(digits));
const report = {
  bench: 'episodes',
  folder,
  episodes: rows.length,
  wallSeconds: round(sum((row) => row.wall) / 1000),
  modelSeconds: round(sum((row) => row.model) / 1000),
  toolSeconds: round(sum((row) => row.tools) / 1000),
  outsideMs: {
    mean: round(outside.reduce((total, value) => total + value, 0) / Math.max(1, rows.length)),
    median: round(outside[Math.floor(outside.length / 2)] ?? 0),
    largest: round(outside.at(-1) ?? 0),
  },
  outsideShare: round(
    outside.reduce((total, value) => total + value, 0) /
      Math.max(
        1,
        sum((row) => row.wall),
      ),
    4,
  ),
};
console.error(
  `${report.episodes} episodes: ${report.outsideMs.mean} ms outside model and tools on average (${round(report.outsideShare * 100, 2)} % of their time)`,
);
console.log(JSON.stringify(report, null, 2));
