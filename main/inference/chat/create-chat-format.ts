import { MassError } from '../../common/base/errors.ts';
import type { ServedModel } from '../model/served-model.ts';
import type { ChatRequest, CreateChatFormat, RenderedPrompt, SampledTokenLedger } from './chat-format.ts';
import { toTurns } from './conversation.ts';
import { hermesParser } from './hermes.ts';
import { JinjaTemplate } from './jinja-template.ts';
import { actionSchema, jsonActionParser, jsonActionTurns } from './json-action.ts';
import { isJsonObject, type JsonObject } from './json-object.ts';
import { MarkerTokens } from './marker-tokens.ts';
import { qwenXmlParser } from './qwen-xml.ts';
import { type Prompt, type PromptSource, renderPrompt } from './render.ts';
import { familyOf, suppliedFor } from './required-call.ts';

const parsers = { 'qwen-xml': qwenXmlParser, hermes: hermesParser, json: jsonActionParser } as const;

/**
 * The chat format of a model, by its own chat template.
 * @throws MassError invalid_input when the model has no template or one that does not parse
 */
export const createChatFormat: CreateChatFormat = (model, { now = new Date() } = {}) => {
  const { chatTemplate, id, bosToken, eosToken } = model.info;
  if (chatTemplate === null || chatTemplate.trim() === '') {
    throw new MassError('invalid_input', `${id} has no chat template; use an instruction-tuned model file.`);
  }
  const template = new JinjaTemplate({ modelId: id, source: chatTemplate, bosToken, eosToken, now });
  const markers = new MarkerTokens(model, chatTemplate);
  const turnEnd = turnEndId(template, markers);
  const endIds = new Set([...model.info.endIds, ...(turnEnd === null ? [] : [turnEnd])]);
  const source: PromptSource = { model, template, markers, endIds, turnEnd };
  const family = familyOf(chatTemplate);
  const stopIds = turnEnd === null || model.info.endIds.includes(turnEnd) ? [] : [turnEnd];
  return {
    family,
    render: (request, ledger) => {
      refuseMarkers(request, markers);
      return family === 'json'
        ? renderJson({ source, stopIds }, request, ledger)
        : renderNative({ source, stopIds }, request, { ledger, family });
    },
    parser: (state) => parsers[family](state),
  };
};

interface Rendering {
  readonly source: PromptSource;
  readonly stopIds: readonly number[];
}

function renderJson({ source, stopIds }: Rendering, request: ChatRequest, ledger: SampledTokenLedger): RenderedPrompt {
  const { tools, responseSchema } = request;
  const hasToolRole = /\btool\b/.test(source.template.source);
  const turns = jsonActionTurns(toTurns(request.messages, request.sharedPrefix), tools, hasToolRole);
  const prompt = renderPrompt(source, { ...request, turns, tools: [], supplied: '' }, ledger);
  const schema = tools.length > 0 ? actionSchema(request) : responseGrammar(responseSchema);
  return {
    ...shared(prompt, stopIds),
    grammar: grammarOf(source, schema, request.thinking && prompt.reasoningOpen),
    parserState: {
      reasoningOpen: prompt.reasoningOpen,
      expectsJsonAction: tools.length > 0,
      ...(request.toolChoice === 'none' ? {} : { tools }),
    },
  };
}

/**
 * A required call is asked for by beginning it: the prompt ends in `<tool_call>`, and in the name of a tool that was
 * named, after a closed reasoning block, and the parser is told. `none` keeps the tools in the prompt, whose prefix then stays the same, and reads no calls.
 */
function renderNative(
  { source, stopIds }: Rendering,
  request: ChatRequest,
  { ledger, family }: { readonly ledger: SampledTokenLedger; readonly family: 'qwen-xml' | 'hermes' },
): RenderedPrompt {
  const { tools, toolChoice, responseSchema } = request;
  const calls = tools.length > 0 && toolChoice !== 'none';
  if (calls && responseSchema !== null) {
    throw new MassError(
      'invalid_input',
      'Ask this model for either tool calls or a response format, not for both at once.',
    );
  }
  const forced = toolChoice === 'required' || typeof toolChoice === 'object';
  if (forced && !calls)
    throw new MassError('invalid_input', 'A call is required, so at least one tool must be offered.');
  const chosen = typeof toolChoice === 'object' ? tools.filter((tool) => tool.name === toolChoice.name) : tools;
  if (calls && chosen.length === 0)
    throw new MassError('invalid_input', 'The tool to call must be among the offered tools.');
  const thinking = request.thinking && !forced;
  const supplied = suppliedFor(family, toolChoice);
  const turns = toTurns(request.messages, request.sharedPrefix);
  const prompt = renderPrompt(source, { ...request, turns, thinking, supplied }, ledger);
  if (forced && prompt.reasoningOpen) {
    throw new MassError(
      'invalid_input',
      'This model always reasons first, so a call cannot be required; use tool_choice "auto".',
    );
  }
  return {
    ...shared(prompt, stopIds),
    grammar: grammarOf(source, responseGrammar(responseSchema), thinking && reasons(source, prompt)),
    parserState: {
      reasoningOpen: prompt.reasoningOpen,
      expectsJsonAction: false,
      ...(calls ? { tools } : {}),
      ...(supplied === '' ? {} : { supplied }),
    },
  };
}

/** A model may open its reasoning block itself (Qwen3): its template then speaks of the block. */
const reasons = (source: PromptSource, prompt: Prompt): boolean =>
  prompt.reasoningOpen || source.template.source.includes('<think>');

const shared = (prompt: Prompt, stopIds: readonly number[]) => ({
  promptIds: prompt.ids,
  forkPoints: prompt.forkPoints,
  messageStarts: prompt.messageStarts,
  ledgerMisses: prompt.ledgerMisses,
  stopIds,
});

function responseGrammar(schema: ChatRequest['responseSchema']): JsonObject | null {
  if (schema === null) return null;
  return Object.keys(schema).length === 0 ? { type: 'object', additionalProperties: true } : schema;
}

function grammarOf(
  source: PromptSource,
  schema: JsonObject | null,
  afterReasoning: boolean,
): RenderedPrompt['grammar'] {
  if (schema === null) return null;
  if (!afterReasoning) return { schema, afterId: null };
  const afterId = source.markers.idOf('</think>');
  if (afterId === null) {
    throw new MassError(
      'invalid_input',
      'This model has no single token for </think>; turn thinking off to use a schema.',
    );
  }
  return { schema, afterId };
}

/** The marker that the template writes after an assistant turn. */
function turnEndId(template: JinjaTemplate, markers: MarkerTokens): number | null {
  const content = 'answer-7f3a';
  const messages = [
    { role: 'user', content: 'x' },
    { role: 'assistant', content },
  ];
  const text = template.render({ messages, tools: null, add_generation_prompt: false });
  const at = text.lastIndexOf(content);
  const [next] = at < 0 ? [] : markers.split(text.slice(at + content.length));
  return typeof next === 'number' ? next : null;
}

/** Template variables are printed as template text, so they may not bring markers of their own. */
function refuseMarkers(request: ChatRequest, markers: MarkerTokens): void {
  const visit = (value: unknown): boolean =>
    typeof value === 'string'
      ? markers.contains(value)
      : Array.isArray(value)
        ? value.some(visit)
        : isJsonObject(value) && Object.entries(value).some(([key, item]) => visit(key) || visit(item));
  if (visit(request.templateVariables)) {
    throw new MassError('invalid_input', 'Template variables must not contain control tokens of the model.');
  }
}

export type ChatModel = Pick<ServedModel, 'info' | 'tokenize' | 'detokenize'>;
