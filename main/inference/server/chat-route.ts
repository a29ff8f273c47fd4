import { createHash, randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { CompletionRecord } from '../../common/protocol/inference.ts';
import type { ChatDelta } from '../chat/chat-format.ts';
import { deltasOf } from './answer-builder.ts';
import { ApiError, badRequest, fromZodError, toApiError } from './api-error.ts';
import { type AnswerIdentity, chunkBody, completionBody } from './chat-answer.ts';
import { ChatBody } from './chat-body.ts';
import { type RequestIdentity, toCompletionInput } from './completion-input.ts';
import type { CompletionService } from './completion-service.ts';
import { EventStream } from './event-stream.ts';
import type { Owner } from './owners.ts';
import { checkDepth, readJsonBody } from './read-body.ts';
import { sendJson } from './send-json.ts';

export interface ChatRouteContext {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly owner: Owner;
  readonly service: CompletionService;
  readonly keepAliveMs: number;
  /** aborted when the server stops */
  readonly stopping: AbortSignal;
}

/** POST /v1/chat/completions. */
export async function chatRoute(context: ChatRouteContext): Promise<void> {
  const { request, response, owner, service, stopping } = context;
  const json = await readJsonBody(request);
  checkDepth(json);
  const parsed = ChatBody.safeParse(json);
  if (!parsed.success) throw fromZodError(parsed.error);
  const body = parsed.data;
  const modelId = service.model.info.id;
  if (body.model !== modelId) {
    throw new ApiError(404, `There is no model '${body.model.slice(0, 200)}' here; the model served is '${modelId}'.`, {
      code: 'model_not_found',
      param: 'model',
    });
  }
  const input = toCompletionInput(body, identityOf(request, owner));
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  if (response.destroyed) gone.abort();
  const signal = AbortSignal.any([gone.signal, stopping]);
  const answer: Answer = {
    ...context,
    identity: { completionId: input.completionId, model: modelId, created: Math.floor(Date.now() / 1000) },
    includeUsage: body.stream_options?.include_usage === true,
  };
  if (body.stream !== true) {
    const record = await service.complete(owner, input, { signal });
    sendJson(response, 200, completionBody(answer.identity, record), answerHeaders(record.completionId));
    return;
  }
  await stream(answer, (onDelta) => service.complete(owner, input, { signal, onDelta }));
}

type Answer = ChatRouteContext & { readonly identity: AnswerIdentity; readonly includeUsage: boolean };
type OnDelta = (delta: ChatDelta) => void;

async function stream(answer: Answer, complete: (onDelta: OnDelta) => Promise<CompletionRecord>): Promise<void> {
  const { response, identity, includeUsage, keepAliveMs } = answer;
  const events = new EventStream(response, { headers: answerHeaders(identity.completionId), keepAliveMs });
  let started = false;
  const onDelta: OnDelta = (delta) => {
    if (!started) events.send(chunkBody(identity, { kind: 'start' }));
    started = true;
    events.send(chunkBody(identity, { kind: 'delta', delta }));
  };
  try {
    const record = await complete(onDelta);
    // An answer recorded earlier comes without deltas of its own.
    if (!started) for (const delta of deltasOf(record.message)) onDelta(delta);
    if (!started) events.send(chunkBody(identity, { kind: 'start' }));
    events.send(chunkBody(identity, { kind: 'finish', finishReason: record.finishReason }));
    if (includeUsage) events.send(chunkBody(identity, { kind: 'usage', usage: record.usage }));
    events.send('[DONE]');
    events.end();
  } catch (error) {
    events.stop();
    if (!response.headersSent) throw error;
    events.send(toApiError(error).body);
    response.end();
  }
}

const answerHeaders = (completionId: string): Record<string, string> => ({ 'x-mass-completion': completionId });

function identityOf(request: IncomingMessage, owner: Owner): RequestIdentity {
  const named = header(request, 'x-mass-request');
  const requestId = named ?? randomUUID();
  return {
    // Derived, so that a request sent again is the same completion.
    completionId: `chatcmpl-${createHash('sha256').update(`${owner.name}\0${requestId}`).digest('hex').slice(0, 32)}`,
    requestId,
    replayable: named !== null,
    thread: header(request, 'x-mass-thread') ?? 'main',
  };
}

function header(request: IncomingMessage, name: string): string | null {
  const value = request.headers[name];
  if (value === undefined || value === '') return null;
  if (typeof value !== 'string' || value.length > 200) {
    throw badRequest(`The header ${name} is one value of at most 200 characters.`, { param: name });
  }
  return value;
}
