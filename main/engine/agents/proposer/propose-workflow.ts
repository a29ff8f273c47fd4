import type { z } from 'zod';
import { MassError } from '../../../common/base/errors.ts';
import type { Message, Usage } from '../../../common/domain/chat.ts';
import type { SamplingConfig } from '../../../common/domain/config.ts';
import { sha256 } from '../../../node/hashing.ts';
import { loadPrompt } from '../../../node/prompts.ts';
import type { Endpoint } from '../../endpoints/endpoint.ts';
import type { ThreadStart } from '../agent-runtime.ts';
import { allocate, type CountTokens, fitToTokens } from '../evidence/budget.ts';
import type { Truncation } from '../evidence/cut.ts';
import { defuseLines, defuseTokens, showInvisible } from '../evidence/escape.ts';
import { fence } from '../evidence/fence.ts';
import { cutText } from '../evidence/fit-text.ts';
import { askStructured, type Parsed, parseAnswer, type StructuredTry, TEMPLATE_TOKENS } from '../structured-call.ts';
import {
  answerProblems,
  blockOf,
  ProposalAnswer,
  type ProposalLimits,
  proposalLimits,
  proposalSchema,
  sameDesign,
} from './proposal.ts';
import type { BlockTools, ProposerInputs } from './proposer-inputs.ts';
import { proposerSections, type Section } from './sections.ts';

export interface ProposeOptions {
  readonly endpoint: Endpoint;
  readonly threadId: string;
  readonly inputs: ProposerInputs;
  readonly tools: BlockTools;
  readonly sampling: z.infer<typeof SamplingConfig>;
  readonly seed: number;
  /** output tokens of one try */
  readonly callTokens: number;
  /** tokens of the context kept free */
  readonly safetyTokens: number;
  readonly signal?: AbortSignal;
}

/** `valid` false: both tries were unusable, `block` is null and the update is consumed as `proposal_failed`. */
export interface Proposal {
  readonly block: string | null;
  readonly changes: string;
  readonly reasons: string;
  readonly evidenceUsed: string;
  readonly expectedImpact: string;
  readonly checks: string;
  readonly valid: boolean;
  /** of the last unusable try; empty when the first was usable */
  readonly problems: readonly string[];
  readonly tries: readonly StructuredTry[];
  readonly usage: Usage;
  readonly truncations: readonly Truncation[];
  readonly promptSha256: string;
  readonly thread: ThreadStart;
  readonly messages: readonly Message[];
}

/**
 * Asks the model for the next workflow block. An answer that is unparseable, unusable as a block or equal to the current
 * design gets one repair turn that names the problems. Same inputs give the same prompt bytes.
 * Errors: `invalid_input` when the context cannot hold the fixed text; those of the endpoint.
 */
export async function proposeWorkflow(options: ProposeOptions): Promise<Proposal> {
  const limits = proposalLimits(options.callTokens, options.sampling.thinking);
  const prompt = await proposerPrompt(options, limits);
  const answer = await askStructured({
    ...options,
    system: prompt.system,
    user: prompt.user,
    schema: proposalSchema(limits),
    parse: (content) => parseProposal(content, options),
    retryNote: (problems, content) => repairNote({ problems, content, prompt, options }),
  });
  const { value, tries } = answer;
  return {
    block: value?.block ?? null,
    changes: value?.answer.changes ?? '',
    reasons: value?.answer.reasons ?? '',
    evidenceUsed: value?.answer.evidence_used ?? '',
    expectedImpact: value?.answer.expected_impact ?? '',
    checks: value?.answer.checks ?? '',
    valid: value !== null,
    problems: tries.findLast(({ problems }) => problems.length > 0)?.problems ?? [],
    tries,
    usage: answer.usage,
    truncations: prompt.truncations,
    promptSha256: proposerPromptHash(),
    thread: {
      threadId: options.threadId,
      role: 'proposer',
      name: 'proposer',
      parentThreadId: null,
      parentCallId: null,
      assignment: null,
    },
    messages: answer.messages,
  };
}

/** One hash over the proposer's prompt files. */
export function proposerPromptHash(): string {
  const files = ['proposer', 'proposer-question', 'proposer-repair'].map((name) => loadPrompt(name, 1));
  return sha256(files.map(({ id, hash }) => `${id} ${hash}\n`).join(''));
}

function parseProposal(content: string, options: ProposeOptions): Parsed<{ answer: ProposalAnswer; block: string }> {
  const parsed = parseAnswer(ProposalAnswer, content);
  if (!('value' in parsed)) return parsed;
  const problems = answerProblems(parsed.value);
  if (problems.length > 0) return { problems: problems.slice(0, 4) };
  const block = blockOf(parsed.value);
  const unusable = options.tools.problems(block);
  if (unusable.length > 0) return { problems: unusable.slice(0, 4) };
  if (sameDesign(block, options.inputs.current.block)) return { problems: ['the plan equals the current one'] };
  return { value: { answer: parsed.value, block } };
}

export interface ProposerPrompt {
  readonly system: string;
  readonly user: string;
  readonly truncations: readonly Truncation[];
  /** tokens kept for the repair note */
  readonly repairTokens: number;
}

/** Share of the prompt kept for the repair note, in which the failed answer is quoted as far as it fits. */
const REPAIR_SHARE = 0.15;
const LEAST_REPAIR_TOKENS = 128;

/** The proposer's whole prompt; exported for tests and for showing what it saw. */
export async function proposerPrompt(options: ProposeOptions, limits: ProposalLimits): Promise<ProposerPrompt> {
  const { endpoint, inputs, callTokens, safetyTokens } = options;
  const countTokens: CountTokens = (text) => endpoint.countTokens(text);
  const system = loadPrompt('proposer', 1).text;
  const systemTokens = await countTokens(system);
  const room = endpoint.contextTokens - callTokens - safetyTokens - systemTokens - TEMPLATE_TOKENS;
  const repairTokens = Math.max(LEAST_REPAIR_TOKENS, Math.floor(room * REPAIR_SHARE));
  const sections = proposerSections(inputs, options.tools);
  const fit = await fitToTokens({
    render: (characters) => renderSections(sections, characters, { version: inputs.current.version, limits }),
    fullCharacters: sections.reduce((sum, { need }) => sum + need, 0),
    maxTokens: room - repairTokens,
    countTokens,
  });
  if (fit !== null) return { system, user: fit.rendering.text, truncations: fit.rendering.truncations, repairTokens };
  throw new MassError(
    'invalid_input',
    `A proposal does not fit: of ${endpoint.contextTokens} context tokens ${callTokens} are kept for the answer and ${safetyTokens} free; lower search.callTokens or executor.contextSafety, or raise model.contextSize.`,
    { details: { contextTokens: endpoint.contextTokens, callTokens, safetyTokens, systemTokens } },
  );
}

function renderSections(
  sections: readonly Section[],
  characters: number,
  fixed: { version: number; limits: ProposalLimits },
): { text: string; complete: boolean; truncations: Truncation[] } {
  const rooms = allocate(characters, sections);
  const rendered = sections.map((section, index) => section.render(rooms[index] ?? 0));
  const slots = Object.fromEntries(sections.map(({ slot }, index) => [slot, rendered[index]?.text ?? '']));
  const { agents, hops, instruction } = fixed.limits;
  const text = loadPrompt('proposer-question', 1).fill({
    ...slots,
    version: fixed.version,
    agents,
    hops,
    instructionCharacters: instruction,
  });
  const truncations = rendered.flatMap((part) => [...part.truncations]);
  return { text, complete: truncations.length === 0, truncations };
}

async function repairNote(call: {
  problems: readonly string[];
  content: string;
  prompt: ProposerPrompt;
  options: ProposeOptions;
}): Promise<string> {
  const template = loadPrompt('proposer-repair', 1);
  const problems = cutText(defuseTokens(showInvisible(call.problems.join('; '))), { room: 400, what: '' }).text;
  const content = defuseTokens(showInvisible(call.content));
  const render = (room: number) => {
    const cut = cutText(content, { room, what: 'failed answer', defused: defuseLines });
    return { ...cut, text: template.fill({ problems, answer: fence('ANSWER', cut.text).text }) };
  };
  const fit = await fitToTokens({
    render,
    fullCharacters: content.length,
    maxTokens: call.prompt.repairTokens,
    countTokens: (text) => call.options.endpoint.countTokens(text),
  });
  return (fit?.rendering ?? render(0)).text;
}
