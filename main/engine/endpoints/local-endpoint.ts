import { randomUUID } from 'node:crypto';
import type { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AsyncDisposable } from '../../common/base/disposable.ts';
import { cancelled, MassError } from '../../common/base/errors.ts';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import type { Completion, CompletionRequest, Endpoint, EndpointProvider } from './endpoint.ts';
import { ConnectionLost, createAgent, type JsonAnswer, postJson } from './http-json.ts';
import type { InferenceProcess } from './inference-process.ts';
import { fromCompletionBody, fromErrorBody, fromTokenizeBody, toBody } from './openai-wire.ts';

/** Broken connections to a process that did not end, before the endpoint counts as failed. */
const maxBrokenConnections = 5;
/** How long a full queue is waited for. */
const maxBusyMs = 30 * 60_000;

/** Endpoints over the supervised inference process, one bearer token per owner. Disposing closes the connections. */
export function createLocalEndpoints(inference: InferenceProcess): EndpointProvider & AsyncDisposable {
  const agent = createAgent();
  return {
    open: async (owner) => new LocalEndpoint({ inference, agent, owner, token: await inference.grant(owner) }),
    dispose: () => {
      agent.destroy();
      return Promise.resolve();
    },
  };
}

interface LocalEndpointParts {
  readonly inference: InferenceProcess;
  readonly agent: Agent;
  readonly owner: string;
  readonly token: string;
}

interface Call {
  readonly path: string;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

class LocalEndpoint implements Endpoint {
  readonly #parts: LocalEndpointParts;

  constructor(parts: LocalEndpointParts) {
    this.#parts = parts;
  }

  get contextTokens(): number {
    return this.#parts.inference.status.contextSize;
  }

  /** The request keeps its id however often it is sent, so it is sampled and recorded once. */
  async complete(request: CompletionRequest): Promise<Completion> {
    const { inference, owner } = this.#parts;
    const requestId = randomUUID();
    const tracked = inference.track(owner, requestId);
    const call: Call = {
      path: '/v1/chat/completions',
      body: toBody(request, inference.status.id),
      headers: { 'x-mass-request': requestId, 'x-mass-thread': request.thread },
      signal: request.signal,
    };
    try {
      const answer = await this.#call(call, () => tracked.recorded());
      return isRecord(answer) ? fromRecord(answer) : fromCompletionBody(answer.body);
    } finally {
      tracked.forget();
    }
  }

  async countTokens(text: string): Promise<number> {
    const answer = await this.#call({ path: '/v1/tokenize', body: { text } }, () => Promise.resolve(null));
    return isRecord(answer) ? answer.usage.promptTokens : fromTokenizeBody(answer.body);
  }

  close(): Promise<void> {
    this.#parts.inference.revoke(this.#parts.token);
    return Promise.resolve();
  }

  /** Sends until there is an answer: over restarts, broken connections and a full queue. `recorded` is asked before each try. */
  async #call(call: Call, recorded: () => Promise<CompletionRecord | null>): Promise<JsonAnswer | CompletionRecord> {
    const { inference } = this.#parts;
    const deadline = Date.now() + maxBusyMs;
    let broken = { incarnation: 0, times: 0 };
    for (;;) {
      const { port, incarnation } = await inference.serving(call.signal);
      const record = await recorded();
      if (record !== null) return record;
      try {
        const answer = await postJson({ agent: this.#parts.agent, port, token: this.#parts.token, ...call });
        if (answer.status === 200) return answer;
        const error = fromErrorBody(answer.status, answer.body);
        if (answer.status !== 429 && answer.status !== 503) throw error;
        if (Date.now() > deadline) throw error;
        await pause(retryAfterMs(answer), call.signal);
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error;
        broken = { incarnation, times: broken.incarnation === incarnation ? broken.times + 1 : 1 };
        if (broken.times >= maxBrokenConnections)
          throw new MassError('infrastructure', error.message, { cause: error });
        await inference.connectionLost(incarnation);
      }
    }
  }
}

const isRecord = (answer: JsonAnswer | CompletionRecord): answer is CompletionRecord => 'completionId' in answer;

function fromRecord({ completionId, message, finishReason, usage }: CompletionRecord): Completion {
  return { completionId, message, finishReason, usage };
}

function retryAfterMs(answer: JsonAnswer): number {
  const seconds = Number(answer.headers['retry-after'] ?? 1);
  return Number.isFinite(seconds) ? Math.min(60, Math.max(0.1, seconds)) * 1000 : 1000;
}

async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  try {
    await sleep(ms, undefined, signal === undefined ? {} : { signal });
  } catch {
    // The only error of a timer is its abort.
    throw cancelled();
  }
}
