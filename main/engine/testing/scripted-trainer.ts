import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { setImmediate as tick } from 'node:timers/promises';
import { cancelled, MassError } from '../../common/base/errors.ts';
import { windowFiles } from '../../common/domain/window-set.ts';
import type {
  Capabilities,
  ScoreOrder,
  TrainerRecipe,
  TrainingPlan,
  TrainOrder,
} from '../../common/protocol/trainer.ts';
import { canonicalJson, sha256 } from '../../node/hashing.ts';
import type { TrainerEngine, TrainOptions } from '../trainer/trainer-engine.ts';
import { type ReadWindow, readWindowSet } from './read-window-set.ts';

export interface ScriptedTrainerOptions {
  /** nats of step n, counted from 1; not finite: the training diverges there */
  readonly lossOf?: (step: number) => number;
  /** nats after step n, 0 before training; null: there are no validation windows, or not finite */
  readonly validationOf?: (step: number) => number | null;
  readonly plan?: Partial<TrainingPlan>;
  /** may throw: the sidecar that died */
  readonly beforeStep?: (step: number) => Promise<void> | void;
  /** natural log-probabilities of one scored position, of a fixed vocabulary; `row` counts them over all prompts */
  readonly scoreOf?: (order: ScoreOrder, row: number) => readonly number[];
}

export const scriptedCapabilities: Capabilities = {
  python: '3.11.0',
  torch: '0',
  transformers: '0',
  peft: '0',
  device: 'cpu: scripted',
  deviceBytes: 1e9,
  threads: 1,
  fastKernels: false,
};

const scriptedPlan: TrainingPlan = {
  parameters: 1000,
  trainable: 100,
  adaptedModules: 7,
  longestWindow: 100,
  weightsBytes: 4000,
  adapterBytes: 1600,
  activationsBytes: 1000,
  neededBytes: 6600,
  freeBytes: 1e9,
  fits: true,
  floatingPointOperations: 1e6,
  hours: 0.5,
  assumption: 'scripted',
};

/** A falling curve. */
const falling = (step: number): number => 1 + 1 / (1 + step);
const twoIds = (order: ScoreOrder): readonly number[] => {
  const first = order.adapter === null ? 0.5 : 0.75;
  return [Math.log(first), Math.log(1 - first)];
};

/**
 * A trainer without a model, for tests of logic: the same events, folders and resumption as native/trainer, losses are
 * functions of the step, adapters a few bytes.
 */
export function createScriptedTrainer(options: ScriptedTrainerOptions = {}): TrainerEngine {
  const guarded =
    <O, R>(work: (order: O) => R) =>
    async (order: O, signal: AbortSignal): Promise<R> => {
      await tick();
      if (signal.aborted) throw cancelled('The trainer was stopped.');
      return work(order);
    };
  return {
    capabilities: (signal) => guarded(() => scriptedCapabilities)(null, signal),
    plan: guarded((order) => {
      const longestWindow = Math.max(...readWindowSet(order.windows).windows.map((window) => window.length));
      return { ...scriptedPlan, longestWindow, ...options.plan };
    }),
    train: (order, how) => new ScriptedRun(order, how, options).train(),
    score: guarded((order) => {
      refuseExisting(order.output);
      const rows = Array.from({ length: order.prompts.length * order.lastPositions }, (_, row) =>
        (options.scoreOf ?? twoIds)(order, row),
      );
      writeFileSync(order.output, new Uint8Array(Float32Array.from(rows.flat()).buffer));
      return { kind: 'scored', output: order.output, vocabulary: rows[0]?.length ?? 1 };
    }),
    merge: guarded((order) => {
      refuseExisting(order.output);
      const bytes = adapterBytes([...order.model.merged, order.adapter]);
      mkdirSync(order.output, { recursive: true });
      writeFileSync(join(order.output, 'model.safetensors'), bytes);
      return { kind: 'merged', output: order.output, sha256: sha256(bytes) };
    }),
    convert: guarded(({ adapters, output }) => ({
      ...converted(adapterBytes(adapters), output),
      rank: rankOf(adapters),
    })),
    convertModel: guarded(({ folder, output }) => ({
      ...converted(readFileSync(join(folder, 'model.safetensors')), output),
      rank: 0,
    })),
  };
}

class ScriptedRun {
  readonly #order: TrainOrder;
  readonly #how: TrainOptions;
  readonly #options: ScriptedTrainerOptions;
  readonly #windows: readonly ReadWindow[];
  readonly #orderSha256: string;
  readonly #validations: number[] = [];
  #step = 0;

  constructor(order: TrainOrder, how: TrainOptions, options: ScriptedTrainerOptions) {
    this.#order = order;
    this.#how = how;
    this.#options = options;
    this.#windows = readWindowSet(order.windows).windows;
    const windows = sha256(readFileSync(join(order.windows, windowFiles.manifest)));
    this.#orderSha256 = sha256(canonicalJson({ model: order.model, windows, recipe: order.recipe }));
  }

  async train(): ReturnType<TrainerEngine['train']> {
    const { recipe } = this.#order;
    this.#resume();
    if (this.#step === 0) this.#validate();
    while (this.#step < recipe.steps) {
      await this.#options.beforeStep?.(this.#step + 1);
      await tick();
      if (this.#how.signal.aborted) throw cancelled('Training was stopped at once.');
      if (!this.#trainStep()) return this.#done('diverged', `The loss of step ${this.#step + 1} is not finite.`);
      const last = this.#step === recipe.steps;
      const stopping = this.#how.draining() && !last;
      if (this.#step % recipe.validateEvery === 0 || last) this.#validate();
      if (this.#step % recipe.checkpointEvery === 0 || last || stopping) this.#save();
      if (this.#roseTooOften(recipe) && !last) return this.#done('diverged', 'Validation loss rose too often.');
      if (stopping) return this.#done('stopped', `Stopped after step ${this.#step}, as asked.`);
    }
    return this.#done('finished', `All ${recipe.steps} steps are done.`);
  }

  #done(state: 'finished' | 'stopped' | 'diverged', message: string) {
    return { kind: 'done' as const, state, step: this.#step, message };
  }

  /** From the newest checkpoint of the same order. */
  #resume(): void {
    const { output } = this.#order;
    mkdirSync(output, { recursive: true });
    for (const name of readdirSync(output).sort()) {
      const metadata = name.startsWith('step-') ? readMetadata(join(output, name)) : null;
      if (metadata?.orderSha256 === this.#orderSha256) this.#step = metadata.step;
    }
    this.#how.onEvent({
      kind: 'started',
      fromStep: this.#step,
      adaptedModules: scriptedPlan.adaptedModules,
      orderSha256: this.#orderSha256,
    });
  }

  #trainStep(): boolean {
    const { recipe } = this.#order;
    const loss = (this.#options.lossOf ?? falling)(this.#step + 1);
    if (!Number.isFinite(loss)) return false;
    const step = ++this.#step;
    const pool = this.#windows.filter((window) => window.split === 'train');
    const drawn = Array.from(
      { length: recipe.windowsPerStep },
      (_, i) => pool[(step * recipe.windowsPerStep + i) % pool.length] as ReadWindow,
    );
    this.#how.onEvent({
      kind: 'step',
      step,
      loss,
      learningRate: recipe.learningRate * Math.min(1, step / Math.max(1, recipe.warmupSteps)),
      gradNorm: loss / 2,
      windows: drawn.map((window) => window.index),
      tokens: drawn.reduce((sum, window) => sum + window.length, 0),
      labelledTokens: drawn.reduce((sum, window) => sum + window.labelledTokens, 0),
      seconds: 0.01,
      peakBytes: 5000,
    });
    return true;
  }

  #validate(): void {
    const held = this.#windows.filter((window) => window.split === 'validate');
    const wanted = (this.#options.validationOf ?? falling)(this.#step);
    const loss = held.length === 0 ? null : wanted;
    if (loss !== null) this.#validations.push(loss);
    const labelledTokens = held.reduce((sum, window) => sum + window.labelledTokens, 0);
    this.#how.onEvent({ kind: 'validation', step: this.#step, loss, labelledTokens });
  }

  #roseTooOften({ patience }: TrainerRecipe): boolean {
    const newest = this.#validations.slice(-patience - 1);
    return (
      patience > 0 &&
      newest.length === patience + 1 &&
      newest.every((loss, i) => i === 0 || loss > (newest[i - 1] ?? 0))
    );
  }

  #save(): void {
    const { output, recipe, model } = this.#order;
    const folder = join(output, `step-${String(this.#step).padStart(6, '0')}`);
    const partial = join(dirname(folder), `.${basename(folder)}.partial`);
    const adapter = safetensors(`${this.#orderSha256} ${this.#step}`);
    rmSync(partial, { recursive: true, force: true });
    mkdirSync(partial);
    writeFileSync(join(partial, adapterFile), adapter);
    const config = {
      peft_type: 'LORA',
      r: recipe.rank,
      lora_alpha: recipe.alpha,
      base_model_name_or_path: model.base.path,
    };
    writeFileSync(join(partial, configFile), JSON.stringify(config));
    writeFileSync(join(partial, metadataFile), JSON.stringify({ step: this.#step, orderSha256: this.#orderSha256 }));
    rmSync(folder, { recursive: true, force: true });
    renameSync(partial, folder);
    const bytes = readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
    this.#how.onEvent({ kind: 'checkpoint', step: this.#step, folder, bytes, adapterSha256: sha256(adapter) });
  }
}

const adapterFile = 'adapter_model.safetensors';
const configFile = 'adapter_config.json';
const metadataFile = 'checkpoint.json';

function readMetadata(folder: string): { step: number; orderSha256: string } | null {
  const path = join(folder, metadataFile);
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as { step: number; orderSha256: string }) : null;
}

/** A file of the safetensors format with one tensor of bytes. */
function safetensors(text: string): Buffer {
  const data = Buffer.from(text);
  const header = { 'layer.lora_A.weight': { dtype: 'U8', shape: [data.length], data_offsets: [0, data.length] } };
  const head = Buffer.from(JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(head.length));
  return Buffer.concat([size, head, data]);
}

const adapterBytes = (folders: readonly string[]): Buffer =>
  Buffer.concat(folders.map((folder) => readFileSync(join(folder, adapterFile))));

const rankOf = (folders: readonly string[]): number =>
  folders.reduce(
    (sum, folder) => sum + (JSON.parse(readFileSync(join(folder, configFile), 'utf8')) as { r: number }).r,
    0,
  );

function converted(bytes: Buffer, output: string) {
  refuseExisting(output);
  writeFileSync(output, bytes);
  return { kind: 'converted' as const, output, sha256: sha256(bytes), bytes: bytes.length };
}

function refuseExisting(path: string): void {
  if (existsSync(path))
    throw new MassError('conflict', `${path} is there already; remove it, or choose another place.`);
}
