import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { seededRandom } from '../../common/base/seeded-random.ts';
import type { DomainEvent } from '../../common/domain/events.ts';
import { openStore, type Store } from './store.ts';

const hash = 'a'.repeat(64);
/** Stays above the size that is kept inside the database. */
const incompressible = (random = seededRandom(1)) => Uint8Array.from({ length: 300_000 }, () => random() * 256);
let folder: string;
let store: Store;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'mass-store-'));
  store = openStore(folder);
});
afterEach(() => {
  store.close();
  rmSync(folder, { recursive: true });
});

const experiment: DomainEvent = {
  type: 'experiment.created',
  experimentId: 'x1',
  name: 'demo',
  configJson: '{}',
  configHash: hash,
  massVersion: '0',
};
const episode: DomainEvent = {
  type: 'episode.planned',
  episodeId: 'e1',
  experimentId: 'x1',
  cycle: 1,
  stage: 'search',
  taskId: 't',
  workflowVersion: null,
  replicate: 0,
  seed: 7,
};

it('sums the bodies that are files without walking their folder', () => {
  expect(store.artifacts.fileBytes()).toBe(0);
  store.artifacts.put('a small one lives in the database');
  const paths = [1, 2].map((seed) => store.artifacts.pathOf(store.artifacts.put(incompressible(seededRandom(seed)))));
  const bytes = paths.reduce((sum, path) => sum + statSync(path).size, 0);
  expect(bytes).toBeGreaterThan(500_000);
  expect(store.artifacts.fileBytes()).toBe(bytes);
});

describe('append', () => {
  it('writes events and rows together', () => {
    store.append(experiment, episode);
    expect(store.experiments.byName('demo')?.experimentId).toBe('x1');
    expect(store.episodes.byId('e1')?.workflowVersion).toBeNull();
    expect(store.eventsSince(0, 10).map((e) => e.event.type)).toEqual(['experiment.created', 'episode.planned']);
  });

  it('writes nothing when one event of several cannot be projected', () => {
    store.append(experiment);
    expect(() => store.append(episode, { ...episode, episodeId: 'e2' })).toThrow(/UNIQUE/);
    expect(store.episodes.byId('e1')).toBeUndefined();
    expect(store.lastSeq()).toBe(1);
  });

  it('keeps one episode per key, also for the bare prompt', () => {
    store.append(experiment, episode);
    expect(() => store.append({ ...episode, episodeId: 'e2' })).toThrow(/UNIQUE/);
  });

  it('drops bodies put by a transaction that fails', () => {
    let put = '';
    expect(() =>
      store.appendWith(() => {
        put = store.artifacts.put('lost body');
        throw new Error('stop');
      }),
    ).toThrow('stop');
    expect(() => store.artifacts.get(put)).toThrow(/not in this data folder/);
  });

  it('tells listeners after the commit, with sequence numbers', () => {
    const seen: number[] = [];
    store.onAppend((events) => seen.push(...events.map((e) => e.seq)));
    store.append(experiment, episode);
    expect(seen).toEqual([1, 2]);
  });
});

describe('folding the log', () => {
  it('reproduces every table', () => {
    store.append(experiment, episode, {
      type: 'attempt.started',
      attemptId: 'a1',
      episodeId: 'e1',
      experimentId: 'x1',
      number: 1,
      generationId: 'g0',
      workspace: 'workspaces/a1',
      sandboxMode: 'bubblewrap',
      promptHash: hash,
      inputsHash: hash,
      runtime: 'team',
      runtimePromptsJson: '{}',
    });
    const other = mkdtempSync(join(tmpdir(), 'mass-fold-'));
    const copy = openStore(other);
    copy.replay(store.eventsSince(0, 1000));
    expect(copy.dump()).toEqual(store.dump());
    expect(copy.lastSeq()).toBe(store.lastSeq());
    copy.close();
    rmSync(other, { recursive: true });
  });
});

describe('artifacts', () => {
  it('returns the bytes that were put, small and large', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 2000 }), (bytes) => {
        expect(new Uint8Array(store.artifacts.get(store.artifacts.put(bytes)))).toEqual(bytes);
      }),
    );
    const noise = incompressible();
    expect(new Uint8Array(store.artifacts.get(store.artifacts.put(noise)))).toEqual(noise);
  });

  it('keeps token ids exactly', () => {
    const ids = [0, 1, 248_319, 4_294_967_295];
    expect(store.artifacts.ids(store.artifacts.putIds(ids))).toEqual(ids);
  });

  it('names a damaged body instead of returning it', () => {
    const noise = incompressible();
    const key = store.artifacts.put(noise);
    const path = store.artifacts.pathOf(key);
    const bytes = readFileSync(path);
    bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] as number) ^ 255;
    writeFileSync(path, bytes);
    expect(() => store.artifacts.get(key)).toThrow(/damaged on disk/);
  });
});

it('refuses a database of a newer version', () => {
  store.close();
  const raw = openStore(folder);
  raw.close();
  const sqlite = join(folder, 'mass.sqlite');
  return import('better-sqlite3').then(({ default: Database }) => {
    const db = new Database(sqlite);
    db.prepare("INSERT INTO migrations VALUES ('99990101T000000_future.sql', 0)").run();
    db.close();
    expect(() => openStore(folder)).toThrow(/newer version/);
    const clean = new Database(sqlite);
    clean.prepare("DELETE FROM migrations WHERE name LIKE '9999%'").run();
    clean.close();
    store = openStore(folder);
  });
});
