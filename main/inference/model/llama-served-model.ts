import type { LlamaContext, LlamaModel, Token } from 'node-llama-cpp';
import type { Logger } from '../../common/base/logger.ts';
import type { MemoryPlan } from '../../common/domain/memory-plan.ts';
import type { LoadOrder } from '../../common/protocol/inference.ts';
import type { CheckpointLimits } from '../scheduler/checkpoints.ts';
import type { ExclusiveGate } from '../scheduler/exclusive-gate.ts';
import { GrammarCompiler } from '../scheduler/grammar.ts';
import type { MetricsCounter } from '../scheduler/metrics.ts';
import { Scheduler } from '../scheduler/scheduler.ts';
import type { Device } from './device.ts';
import type { LoadedModel } from './load.ts';
import type { ModelFile } from './model-file.ts';
import type { GenerateRequest, GenerateResult, JsonSchema, ModelInfo, SchedulerMetrics } from './served-model.ts';
import { tokenizerInfo } from './tokenizer-info.ts';

export interface LlamaServedModelOptions {
  readonly order: LoadOrder;
  readonly file: ModelFile;
  readonly device: Device;
  readonly plan: MemoryPlan;
  readonly model: LlamaModel;
  readonly context: LlamaContext;
  readonly gate: ExclusiveGate;
  readonly metrics: MetricsCounter;
  readonly checkpoints: CheckpointLimits;
  readonly logger: Logger;
}

/** A loaded model behind the `ServedModel` contract. It owns the context, the model and the llama.cpp instance. */
export class LlamaServedModel implements LoadedModel {
  readonly info: ModelInfo;
  readonly plan: MemoryPlan;
  readonly #options: LlamaServedModelOptions;
  readonly #grammars: GrammarCompiler;
  readonly #scheduler: Scheduler;
  #disposing: Promise<void> | null = null;

  constructor(options: LlamaServedModelOptions) {
    this.#options = options;
    this.plan = options.plan;
    this.info = describe(options);
    this.#grammars = new GrammarCompiler(options.device.llama);
    this.#scheduler = new Scheduler({
      ...options,
      grammars: this.#grammars,
      contextSize: this.info.contextSize,
      sequences: this.info.sequences,
      endIds: new Set(this.info.endIds),
    });
  }

  tokenize(text: string, { special }: { special: boolean }): number[] {
    return this.#options.model.tokenize(text, special);
  }

  detokenize(ids: readonly number[], { special }: { special: boolean }): string {
    return this.#options.model.detokenize(ids as readonly Token[], special);
  }

  generate(request: GenerateRequest): Promise<GenerateResult> {
    return this.#scheduler.generate(request);
  }

  /** For tests, see `Scheduler.nextTokenProbabilities`. */
  nextTokenProbabilities(request: GenerateRequest): Promise<ReadonlyMap<number, number>> {
    return this.#scheduler.nextTokenProbabilities(request);
  }

  scoreNext(promptIds: readonly number[], positions: number): Promise<Float32Array[]> {
    return this.#scheduler.scoreNext({ promptIds, temperature: 1, topP: 1, topK: 0, seed: 0, maxTokens: 1 }, positions);
  }

  async checkSchema(schema: JsonSchema): Promise<void> {
    await this.#grammars.compile(schema);
  }

  metrics(): SchedulerMetrics {
    return this.#scheduler.metrics();
  }

  dispose(): Promise<void> {
    this.#disposing ??= this.#close();
    return this.#disposing;
  }

  async #close(): Promise<void> {
    await this.#scheduler.dispose();
    await this.#options.context.dispose();
    await this.#options.model.dispose();
    await this.#options.device.llama.dispose();
  }
}

function describe({ order, file, device, plan, model }: LlamaServedModelOptions): ModelInfo {
  return {
    ...tokenizerInfo(file, model),
    id: order.model.id,
    path: order.path,
    sha256: order.sha256,
    adapterSha256: order.adapter?.sha256 ?? null,
    hybrid: model.fileInsights.isHybrid || model.fileInsights.isRecurrent,
    contextSize: plan.contextSize,
    sequences: plan.sequences,
    device: device.description,
  };
}
