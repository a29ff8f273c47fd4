import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TaskManifest } from '../../main/common/domain/task.ts';

const folder = import.meta.dirname;
const ids = readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);
const manifestOf = (id: string) => TaskManifest.parse(JSON.parse(readFileSync(join(folder, id, 'task.json'), 'utf8')));
const read = (id: string, name: string) => readFileSync(join(folder, id, name), 'utf8');

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'mass-tasks-'));
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

/** Runs a task's generator into a new folder; returns file name -> text. `-I`: no site packages, no environment. */
function generate(id: string, seed?: number): Record<string, string> {
  const out = mkdtempSync(join(scratch, `${id}-`));
  const data = manifestOf(id).data!;
  execFileSync('python3', ['-I', join(folder, id, data.script), out, String(seed ?? data.seed)]);
  return Object.fromEntries(
    readdirSync(out)
      .sort()
      .map((name) => [name, readFileSync(join(out, name), 'utf8')]),
  );
}

function rows(text: string): Record<string, string>[] {
  const [head = '', ...lines] = text.trimEnd().split('\n');
  const names = head.split(',');
  return lines.map((line) => Object.fromEntries(line.split(',').map((cell, i) => [names[i]!, cell])));
}

const mean = (values: number[]): number => values.reduce((sum, v) => sum + v, 0) / values.length;

function correlation(pairs: [number, number][]): number {
  const mx = mean(pairs.map(([x]) => x));
  const my = mean(pairs.map(([, y]) => y));
  let [xy, xx, yy] = [0, 0, 0];
  for (const [x, y] of pairs) {
    xy += (x - mx) * (y - my);
    xx += (x - mx) ** 2;
    yy += (y - my) ** 2;
  }
  return xy / Math.sqrt(xx * yy);
}

describe('every demonstration task', () => {
  it('covers the three domains once, numbered in the range of its domain', () => {
    const manifests = ids.map(manifestOf);
    expect(new Set(manifests.map((m) => m.number)).size).toBe(manifests.length);
    expect(manifests.map((m) => m.domain).sort()).toEqual(['finance', 'pharmacy', 'robotics']);
    const ranges = { finance: [1, 99], pharmacy: [200, 299], robotics: [300, 399] } as const;
    for (const { domain, number } of manifests) {
      const [low, high] = ranges[domain as keyof typeof ranges];
      expect(number).toBeGreaterThanOrEqual(low);
      expect(number).toBeLessThanOrEqual(high);
    }
  });

  it.each(ids)('%s: manifest, prompt and workflow agree and fit a small context', (id) => {
    const manifest = manifestOf(id);
    expect(manifest.id).toBe(id);
    const prompt = read(id, 'prompt.md');
    for (const { path } of manifest.deliverables) expect(prompt).toContain(`\`${path}\``);
    for (const path of manifest.data!.files) expect(prompt).toContain(`\`${path}\``);
    expect(manifest.deliverables.map((d) => d.kind)).toEqual(['report', 'code', 'metrics', 'plot', 'manifest']);
    // 350 and 400 tokens of SmolLM2; it needs one token for about 4 characters of this text.
    expect(prompt.length).toBeLessThan(1500);
    const workflow = JSON.parse(read(id, 'workflow.json'));
    const names = new Set(['orchestrator', ...workflow.agents.map((a: { agent_id: string }) => a.agent_id)]);
    expect(names.size).toBe(workflow.agents.length + 1);
    for (const hop of workflow.hops) {
      expect(names).toContain(hop.from);
      expect(names).toContain(hop.to);
    }
    expect(JSON.stringify(workflow).length).toBeLessThan(1700);
  });

  it.each(ids)('%s: data holds the declared files and depends on the seed alone', (id) => {
    const first = generate(id);
    expect(Object.keys(first)).toEqual([...manifestOf(id).data!.files].sort());
    expect(generate(id)).toEqual(first);
    expect(generate(id, 1)).not.toEqual(first);
    for (const text of Object.values(first)) expect(text.length).toBeLessThan(1_000_000);
  });
});

describe('the traps are really in the data', () => {
  it('finance: the score looks strong on its own day and works in one sector only once published', () => {
    const data = generate('score-after-costs');
    const sector = new Map(rows(data['assets.csv']!).map((r) => [r.asset!, r.sector!]));
    const closes = new Map<string, Map<string, number>>();
    for (const r of rows(data['prices.csv']!))
      if (r.close) closes.set(r.asset!, (closes.get(r.asset!) ?? new Map()).set(r.date!, Number(r.close)));
    const days = [...new Set(rows(data['prices.csv']!).map((r) => r.date!))].sort();
    const change = (asset: string, day: number): number => {
      const [before, after] = [closes.get(asset)?.get(days[day - 1]!), closes.get(asset)?.get(days[day]!)];
      return before && after && after / before > 0.5 ? after / before - 1 : Number.NaN;
    };
    const naive: [number, number][] = [];
    const honest: Record<string, [number, number][]> = { technology: [], energy: [], retail: [] };
    for (const r of rows(data['scores.csv']!)) {
      const same = change(r.asset!, days.indexOf(r.date!));
      if (!Number.isNaN(same)) naive.push([Number(r.score), same]);
      const published = days.indexOf(r.published!);
      const next = published < 0 ? Number.NaN : change(r.asset!, published + 1);
      if (!Number.isNaN(next)) honest[sector.get(r.asset!)!]!.push([Number(r.score), next]);
    }
    expect(correlation(naive)).toBeGreaterThan(0.5);
    expect(correlation(honest.technology!)).toBeGreaterThan(0.04);
    expect(Math.abs(correlation(honest.energy!))).toBeLessThan(0.04);
    expect(Math.abs(correlation(honest.retail!))).toBeLessThan(0.04);
  });

  it('pharmacy: drug B looks harmful until baseline kidney function and diabetes are held fixed', () => {
    const data = generate('drug-safety');
    const baseline = new Map(
      rows(data['labs.csv']!)
        .filter((r) => r.day === '0')
        .map((r) => [r.patient!, Number(r.creatinine) / (r.unit === 'umol/L' ? 88.4 : 1)]),
    );
    const injured = new Map(rows(data['outcomes.csv']!).map((r) => [r.patient!, Number(r.injury)]));
    const strata = new Map<string, number[][]>();
    for (const p of rows(data['patients.csv']!)) {
      const creatinine = baseline.get(p.patient!);
      if (creatinine === undefined) continue;
      const key = `${Math.min(9, Math.floor(creatinine / 0.15))}|${p.diabetes}|${Math.floor(Number(p.age) / 12)}`;
      // Rows: drug A, drug B; columns: well, injured.
      const table = strata.get(key) ?? [0, 1].map(() => [0, 0]);
      table[p.drug === 'B' ? 1 : 0]![injured.get(p.patient!)!]! += 1;
      strata.set(key, table);
    }
    // Mantel-Haenszel odds ratio over tables [[a0, a1], [b0, b1]]: sum(b1 a0 / n) / sum(b0 a1 / n).
    const oddsRatio = (tables: number[][][]): number => {
      let [above, below] = [0, 0];
      for (const [[a0, a1], [b0, b1]] of tables as [[number, number], [number, number]][]) {
        const n = a0 + a1 + b0 + b1;
        above += (b1 * a0) / n;
        below += (b0 * a1) / n;
      }
      return above / below;
    };
    const tables = [...strata.values()];
    const pooled = [0, 1].map((drug) => [0, 1].map((end) => tables.reduce((sum, t) => sum + t[drug]![end]!, 0)));
    expect(oddsRatio([pooled])).toBeGreaterThan(1.1);
    expect(oddsRatio(tables)).toBeLessThan(0.85);
  });

  it('robotics: firmware 2 logs centimetres and the temperature gives the distance away', () => {
    const data = generate('stopping-distance');
    const stops = rows(data['stops.csv']!);
    const speed = new Map(
      rows(data['telemetry.csv']!)
        .filter((r) => r.t_ms === '0')
        .map((r) => [r.stop!, Number(r.speed)]),
    );
    const speeds = (firmware: string) => stops.filter((s) => s.firmware === firmware).map((s) => speed.get(s.stop!)!);
    expect(mean(speeds('2')) / mean(speeds('1'))).toBeGreaterThan(80);
    expect(mean(speeds('2')) / mean(speeds('1'))).toBeLessThan(125);
    expect(correlation(stops.map((s) => [Number(s.brake_temp_c), Number(s.distance_m)]))).toBeGreaterThan(0.9);
    const missing = (surface: string) =>
      mean(stops.filter((s) => s.surface === surface).map((s) => Number(!s.payload_kg)));
    expect(missing('wet')).toBeGreaterThan(2 * missing('dry'));
  });
});
