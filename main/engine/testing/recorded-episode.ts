import { MassError } from '../../common/base/errors.ts';
import type { AssistantMessage, FinishReason, Message, ToolDefinition } from '../../common/domain/chat.ts';
import { CompletionChain } from '../../common/domain/completion-chain.ts';
import type { Vocabulary } from '../endpoints/vocabulary.ts';
import { recordCompletion } from '../stages/record-completion.ts';
import { nothingDone } from '../stages/run-episode.ts';
import type { AttemptRow } from '../store/repositories/episodes.ts';
import type { ThreadRow } from '../store/repositories/threads.ts';
import type { Store } from '../store/store.ts';

export const recordedModelSha256 = 'b'.repeat(64);

export interface PlannedEpisode {
  readonly experimentId: string;
  readonly generationId: string;
  readonly taskId: string;
  readonly replicate: number;
  /** what the orchestrator was given */
  readonly prompt: string;
}

/** Records an episode of the collect stage that has just begun. */
export function startEpisode(store: Store, planned: PlannedEpisode): AttemptRow {
  const { experimentId, generationId, taskId, replicate, prompt } = planned;
  const episodeId = `ep-${taskId}-${replicate}`;
  const attemptId = `at-${taskId}-${replicate}`;
  store.appendWith(() => [
    {
      type: 'episode.planned',
      episodeId,
      experimentId,
      cycle: 1,
      stage: 'collect',
      taskId,
      workflowVersion: 0,
      replicate,
      seed: replicate,
    },
    {
      type: 'attempt.started',
      attemptId,
      episodeId,
      experimentId,
      number: 1,
      generationId,
      workspace: `workspaces/${attemptId}`,
      sandboxMode: 'host',
      promptHash: store.artifacts.put(prompt),
      inputsHash: store.artifacts.putJson([]),
      runtime: 'team',
      runtimePromptsJson: '{}',
    },
  ]);
  const attempt = store.episodes.attempts(episodeId)[0];
  if (!attempt) throw new MassError('internal', `${attemptId} was not recorded.`);
  return attempt;
}

/** Ends it as a success. */
export function endEpisode(store: Store, { attemptId, episodeId, experimentId }: AttemptRow): void {
  store.append({
    type: 'attempt.ended',
    attemptId,
    episodeId,
    experimentId,
    outcome: 'completed',
    haltReason: null,
    ending: 'report',
    ...nothingDone,
  });
}

export interface RecordedAnswer {
  readonly messages: readonly Message[];
  readonly message: AssistantMessage;
  readonly sampledIds: Uint32Array;
  readonly finishReason?: FinishReason;
}

/** Records the conversations of an attempt as an inference process would have, with words of the caller's choice. */
export class EpisodeRecorder {
  readonly #store: Store;
  readonly #vocabulary: Vocabulary;
  readonly #attempt: AttemptRow;
  readonly #tools: readonly ToolDefinition[];
  readonly #thinking: boolean;
  readonly #chain = new CompletionChain();
  #answers = 0;

  constructor(options: {
    readonly store: Store;
    readonly vocabulary: Vocabulary;
    readonly attempt: AttemptRow;
    readonly tools?: readonly ToolDefinition[];
    readonly thinking?: boolean;
  }) {
    this.#store = options.store;
    this.#vocabulary = options.vocabulary;
    this.#attempt = options.attempt;
    this.#tools = options.tools ?? [];
    this.#thinking = options.thinking ?? true;
  }

  /** Returns the id of a new thread. */
  thread(role: ThreadRow['role'], name: string): string {
    const { attemptId, experimentId } = this.#attempt;
    const threadId = `${attemptId}:${name}`;
    this.#store.append({
      type: 'thread.started',
      threadId,
      experimentId,
      ownerKind: 'attempt',
      ownerId: attemptId,
      role,
      name,
      parentThreadId: null,
      parentCallId: null,
      assignmentHash: null,
    });
    return threadId;
  }

  /** The completion's id is `<thread>#<number within the attempt>`. */
  async answer(
    thread: string,
    { messages, message, sampledIds, finishReason }: RecordedAnswer,
  ): Promise<{ completionId: string; promptTokens: number }> {
    const owner = this.#owner;
    const sampling = { temperature: 0.6, topP: 0.95, topK: 20, seed: 1, maxTokens: 4096, thinking: this.#thinking };
    const tools = [...this.#tools];
    const prompt = await this.#vocabulary.render({
      owner,
      answers: this.#answers,
      messages: [...messages],
      tools,
      thinking: this.#thinking,
      now: this.#attempt.startedAt,
    });
    const promptIds = [...prompt.ids];
    const link = this.#chain.link(thread, promptIds);
    const completionId = `${thread}#${this.#answers}`;
    const ended = finishReason ?? ((message.toolCalls ?? []).length > 0 ? 'tool_calls' : 'stop');
    recordCompletion(this.#store, {
      completionId,
      requestId: completionId,
      owner,
      thread,
      ...link,
      promptTail: [...link.promptTail],
      sampledIds: [...sampledIds],
      messages: [...messages],
      tools,
      message,
      messageHash: '',
      finishReason: ended,
      sampling,
      usage: {
        promptTokens: promptIds.length,
        cachedTokens: link.parentPrefix,
        evaluatedTokens: promptIds.length - link.parentPrefix,
        completionTokens: sampledIds.length,
      },
      ledgerMisses: 0,
      resumedAt: [],
      modelSha256: recordedModelSha256,
      adapterSha256: null,
      queueMs: 0,
      prefillMs: 0,
      decodeMs: 0,
    });
    this.#chain.add(thread, completionId, promptIds, [...sampledIds]);
    const known = { message, sampledIds, thinking: this.#thinking, truncated: ended === 'length', stopTexts: [] };
    await this.#vocabulary.learn({ owner, tools, answers: [known] });
    this.#answers++;
    return { completionId, promptTokens: promptIds.length };
  }

  /** The vocabulary forgets what it was told while recording. */
  async end(): Promise<void> {
    await this.#vocabulary.forget(this.#owner);
    endEpisode(this.#store, this.#attempt);
  }

  get #owner(): string {
    return `recorder of ${this.#attempt.attemptId}`;
  }
}
