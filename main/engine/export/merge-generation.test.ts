import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { MassError } from '../../common/base/errors.ts';
import { sha256 } from '../../node/hashing.ts';
import { buildGguf, smallModel } from '../models/gguf-fixture.ts';
import { createScriptedTrainer } from '../testing/scripted-trainer.ts';
import type { TrainerEngine } from '../trainer/trainer-engine.ts';
import { type MergeWish, mergeGeneration } from './merge-generation.ts';

let root: string;
let wish: MergeWish;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'mass-merge-'));
  const servedGguf = join(root, 'base.gguf');
  writeFileSync(servedGguf, buildGguf(smallModel));
  const merged = ['one', 'two'].map((name) => {
    mkdirSync(join(root, name));
    writeFileSync(join(root, name, 'adapter_model.safetensors'), `${name};`);
    return join(root, name);
  });
  wish = {
    model: { base: { kind: 'gguf', path: servedGguf }, merged },
    servedGguf,
    title: 'first-L2',
    type: 'q8_0',
    out: join(root, 'out'),
    card: '# first L2\n',
    machine: { device: 'cpu', threads: 1, allowSlowKernels: false },
  };
});
afterEach(() => rmSync(root, { recursive: true }));

const merge = (given: Partial<MergeWish> = {}, trainer: TrainerEngine = createScriptedTrainer()) =>
  mergeGeneration(
    { ...wish, ...given },
    { trainer, llamaCpp: '/dev/null', doing: () => undefined, signal: new AbortController().signal },
  );

it('writes every adapter of the lineage, oldest first, the GGUF and the card into one new folder', async () => {
  const made = await merge();
  expect(made).toEqual({
    folder: wish.out,
    safetensors: 'safetensors',
    gguf: 'first-L2-Q8_0.gguf',
    ggufBytes: 8,
    ggufSha256: sha256('one;two;'),
  });
  expect(readdirSync(wish.out).sort()).toEqual(['README.md', 'first-L2-Q8_0.gguf', 'safetensors']);
  // The scripted trainer's weights are its adapters' bytes.
  expect(readFileSync(join(wish.out, 'safetensors', 'model.safetensors'), 'utf8')).toBe('one;two;');
  expect(readFileSync(join(wish.out, 'README.md'), 'utf8')).toBe('# first L2\n');
});

it('writes into nothing that exists, and below nothing that does not', async () => {
  mkdirSync(wish.out);
  await expect(merge()).rejects.toMatchObject({ code: 'conflict' });
  writeFileSync(join(root, 'file'), 'mine');
  await expect(merge({ out: join(root, 'file') })).rejects.toMatchObject({ code: 'conflict' });
  await expect(merge({ out: join(root, 'file', 'out') })).rejects.toMatchObject({ code: 'not_found' });
  await expect(merge({ out: join(root, 'nowhere', 'out') })).rejects.toMatchObject({ code: 'not_found' });
  expect(readFileSync(join(root, 'file'), 'utf8')).toBe('mine');
  expect(readdirSync(wish.out)).toEqual([]);
});

it('refuses L0, and leaves nothing behind', async () => {
  await expect(merge({ model: { ...wish.model, merged: [] } })).rejects.toMatchObject({ code: 'usage' });
  expect(readdirSync(root).filter((name) => name.startsWith('out'))).toEqual([]);
});

it('leaves nothing behind when a conversion fails or somebody takes the name', async () => {
  const scripted = createScriptedTrainer();
  const full: TrainerEngine = {
    ...scripted,
    convertModel: () => Promise.reject(new MassError('prerequisite', 'The disk is full.')),
  };
  await expect(merge({}, full)).rejects.toThrow('The disk is full.');
  const late: TrainerEngine = {
    ...scripted,
    convertModel: (order, signal) => {
      mkdirSync(wish.out);
      return scripted.convertModel(order, signal);
    },
  };
  await expect(merge({}, late)).rejects.toMatchObject({ code: 'conflict' });
  expect(readdirSync(root).filter((name) => name.startsWith('out'))).toEqual(['out']);
  expect(readdirSync(wish.out)).toEqual([]);
});
