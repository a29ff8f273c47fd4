import type { LlamaModel } from 'node-llama-cpp';
import { MassError } from '../../common/base/errors.ts';
import type { GenerateRequest, GenerateResult } from '../model/served-model.ts';
import { checkpointPositions } from './checkpoints.ts';
import { Completion } from './completion.ts';
import type { GrammarCompiler } from './grammar.ts';
import { GrammarConstraint } from './grammar-constraint.ts';
import type { MetricsCounter } from './metrics.ts';
import { samplerOptions } from './sampling.ts';
import type { SequenceSlot } from './sequence-slot.ts';

export interface GenerationDependencies {
  readonly model: LlamaModel;
  readonly grammars: GrammarCompiler;
  readonly metrics: MetricsCounter;
  readonly contextSize: number;
  readonly endIds: ReadonlySet<number>;
  readonly sliceSize: () => number;
}

export interface GenerationRun {
  /** of the request or of the scheduler's end */
  readonly signal: AbortSignal;
  readonly queueMs: number;
}

/** Everything before the first sampled token: prompt and ids of an earlier process. */
const contextOf = (request: GenerateRequest): number[] => [...request.promptIds, ...(request.resumeIds ?? [])];

/** The ids a sequence must hold before sampling starts: all but the last, whose evaluation gives the first logits. */
export const prefixOf = (request: GenerateRequest): number[] => contextOf(request).slice(0, -1);

/** Refuses what can never run, before it waits in the queue. */
export function checkRequest(request: GenerateRequest, contextSize: number): void {
  if (request.promptIds.length === 0)
    throw new MassError('invalid_input', 'The prompt is empty; a completion needs at least one token.');
  // One token must fit after the prompt.
  if (request.promptIds.length >= contextSize)
    throw new MassError(
      'invalid_input',
      `The prompt has ${request.promptIds.length} tokens and the context holds ${contextSize}; shorten the prompt or raise model.contextSize.`,
      {
        details: {
          reason: 'context_length_exceeded',
          promptTokens: request.promptIds.length,
          contextTokens: contextSize,
        },
      },
    );
}

/** Runs one request on a slot it owns. `queueMs` is passed through into the result. */
export async function runGeneration(
  request: GenerateRequest,
  slot: SequenceSlot,
  dependencies: GenerationDependencies,
  run: GenerationRun,
): Promise<GenerateResult> {
  const { model, metrics } = dependencies;
  const resumed = request.resumeIds ?? [];
  const completion = new Completion(
    {
      endIds: new Set([...dependencies.endIds, ...(request.stopIds ?? [])]),
      stopTexts: request.stopTexts ?? [],
      maxIds: Math.min(request.maxTokens, dependencies.contextSize - request.promptIds.length),
    },
    (ids, before) => model.detokenize(ids as never, true, before as never),
  );
  const constraint =
    request.grammar === undefined
      ? null
      : new GrammarConstraint({
          model,
          grammar: await dependencies.grammars.compile(request.grammar.schema),
          afterId: request.grammar.afterId,
        });
  for (const id of resumed) {
    completion.push(id);
    constraint?.replay(id);
    if (completion.finishReason !== null) break;
  }

  const started = performance.now();
  const cached = completion.finishReason === null ? await fillSlot(request, slot, dependencies, run.signal) : 0;
  const filled = performance.now();
  if (completion.finishReason === null) {
    const last = resumed.at(-1) ?? (request.promptIds.at(-1) as number);
    await slot.sample(last as never, {
      ...samplerOptions(request, resumed.length),
      ...(constraint === null ? {} : { grammarEvaluationState: () => constraint.state }),
      signal: run.signal,
      onToken: (id) => {
        metrics.token();
        constraint?.sampled(id);
        const ended = completion.push(id);
        request.onTokens?.([id]);
        return ended;
      },
    });
  }
  if (completion.finishReason === null)
    throw new MassError('infrastructure', 'The model stopped sampling without ending the completion; try again.');
  const cachedPrompt = Math.min(cached, request.promptIds.length);
  return {
    sampledIds: completion.ids,
    finishReason: completion.finishReason,
    stopText: completion.stopText,
    cachedTokens: cachedPrompt,
    evaluatedTokens: request.promptIds.length - cachedPrompt,
    queueMs: run.queueMs,
    prefillMs: filled - started,
    decodeMs: performance.now() - filled,
  };
}

/** Brings the slot to the request's prefix, keeping checkpoints on the way; returns the tokens that were in place. */
export async function fillSlot(
  request: GenerateRequest,
  slot: SequenceSlot,
  dependencies: GenerationDependencies,
  signal: AbortSignal,
): Promise<number> {
  const target = prefixOf(request);
  const cached = await slot.rewind(target);
  const counted = Math.min(cached, request.promptIds.length);
  dependencies.metrics.prompt(counted, request.promptIds.length - counted);
  const positions = checkpointPositions({
    promptIds: request.promptIds,
    forkPoints: request.forkPoints ?? [],
    endIds: dependencies.endIds,
  });
  const options = { sliceSize: dependencies.sliceSize, signal };
  for (const [position, kind] of positions) {
    if (position < slot.held) continue;
    await slot.prefill(target.slice(slot.held, position), options);
    await slot.checkpoint(kind);
  }
  await slot.prefill(target.slice(slot.held), options);
  return cached;
}
