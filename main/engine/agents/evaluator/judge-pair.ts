import type { z } from 'zod';
import type { Message, Usage } from '../../../common/domain/chat.ts';
import type { SamplingConfig } from '../../../common/domain/config.ts';
import type { Domain, Task } from '../../../common/domain/task.ts';
import { sha256 } from '../../../node/hashing.ts';
import { loadPrompt, loadPromptSet } from '../../../node/prompts.ts';
import type { Endpoint } from '../../endpoints/endpoint.ts';
import type { ThreadStart } from '../agent-runtime.ts';
import { type CountTokens, evidenceBudget } from '../evidence/budget.ts';
import type { EvidenceBundle } from '../evidence/bundle.ts';
import type { Truncation } from '../evidence/cut.ts';
import { fence } from '../evidence/fence.ts';
import { fitText } from '../evidence/fit-text.ts';
import { renderEvidence } from '../evidence/render.ts';
import { askStructured, type StructuredTry, TEMPLATE_TOKENS } from '../structured-call.ts';
import { personaOf } from './persona.ts';
import { parseVerdict, type Side, type Verdict, type VerdictLimits, verdictLimits, verdictSchema } from './verdict.ts';

export interface JudgeOptions {
  readonly endpoint: Endpoint;
  readonly threadId: string;
  readonly task: { readonly manifest: Pick<Task['manifest'], 'number' | 'domain'>; readonly barePrompt: string };
  /** shown first, as A */
  readonly a: EvidenceBundle;
  readonly b: EvidenceBundle;
  readonly sampling: z.infer<typeof SamplingConfig>;
  readonly seed: number;
  /** output tokens of one try */
  readonly callTokens: number;
  /** tokens of the context kept free */
  readonly safetyTokens: number;
  readonly signal?: AbortSignal;
}

/** One presentation of a pair. `valid` false: no usable verdict came, and `verdict` is a tie by rule. */
export interface PairVerdict {
  readonly verdict: Side;
  readonly valid: boolean;
  readonly rationale: string;
  readonly citations: readonly string[];
  /** citations that name nothing either submission holds */
  readonly unknownCitations: readonly string[];
  readonly criteria: Verdict['criteria'] | null;
  readonly persona: Domain;
  readonly tries: readonly StructuredTry[];
  readonly usage: Usage;
  readonly truncations: readonly (Truncation & { readonly of: 'task' | 'A' | 'B' })[];
  /** sha256 over all prompt files the evaluator reads */
  readonly promptSha256: string;
  readonly thread: ThreadStart;
  readonly messages: readonly Message[];
}

/**
 * Shows two submissions to the model and returns its verdict: A, B or tie. An unusable answer gets one second try with
 * another seed; a second one is a tie marked invalid. Same inputs give the same prompt bytes.
 * Errors: `invalid_input` when the context cannot hold the pair; those of the endpoint.
 */
export async function judgePair(options: JudgeOptions): Promise<PairVerdict> {
  const limits = verdictLimits(options.callTokens, options.sampling.thinking);
  const prompt = await judgePrompt(options, limits);
  const retry = loadPrompt('evaluator-retry', 1);
  const answer = await askStructured({
    ...options,
    system: prompt.system,
    user: prompt.user,
    sharedPrefix: prompt.sharedPrefix,
    schema: verdictSchema(limits),
    parse: parseVerdict,
    retryNote: (problems) => retry.fill({ problems: problems.join('; ') }),
  });
  const { value } = answer;
  const citations = value?.citations ?? [];
  return {
    verdict: value?.verdict ?? 'tie',
    valid: value !== null,
    rationale: value?.rationale.trim() ?? '',
    citations,
    unknownCitations: citations.filter((citation) => !isKnown(citation, options)),
    criteria: value?.criteria ?? null,
    persona: prompt.persona,
    tries: answer.tries,
    usage: answer.usage,
    truncations: prompt.truncations,
    promptSha256: evaluatorPromptHash(),
    thread: {
      threadId: options.threadId,
      role: 'evaluator',
      name: `evaluator (${prompt.persona})`,
      parentThreadId: null,
      parentCallId: null,
      assignment: null,
    },
    messages: answer.messages,
  };
}

/** One hash over the evaluator's prompt files: equal hashes mean equal rules. */
export function evaluatorPromptHash(): string {
  const files = [
    loadPrompt('evaluator', 1),
    loadPromptSet('evaluator-personas', 1),
    loadPrompt('evaluator-question', 1),
    loadPrompt('evaluator-retry', 1),
  ];
  return sha256(files.map(({ id, hash }) => `${id} ${hash}\n`).join(''));
}

export interface JudgePrompt {
  readonly system: string;
  readonly user: string;
  /** beginning of `user` up to the end of submission A: equal for all calls that show the same A on the same task */
  readonly sharedPrefix: string;
  readonly persona: Domain;
  readonly truncations: PairVerdict['truncations'];
  /** tokens each submission was given */
  readonly submissionTokens: number;
}

/** At most this share of what is not output goes to the task's text. */
const TASK_SHARE = 0.25;
/** Room for the problems named to a second try. */
const RETRY_PROBLEMS = 'x '.repeat(60);

/** The judge's whole prompt; exported for tests and for showing what a judge saw. */
export async function judgePrompt(options: JudgeOptions, limits: VerdictLimits): Promise<JudgePrompt> {
  const { endpoint, task, callTokens, safetyTokens } = options;
  const countTokens: CountTokens = (text) => endpoint.countTokens(text);
  const persona = personaOf(task.manifest);
  const system = loadPrompt('evaluator', 1).fill({ persona: loadPromptSet('evaluator-personas', 1).fill(persona) });
  const question = loadPrompt('evaluator-question', 1);
  const taskTokens = Math.floor((endpoint.contextTokens - callTokens - safetyTokens) * TASK_SHARE);
  const taskText = await fitText(task.barePrompt, { maxTokens: Math.max(taskTokens, 64), countTokens });
  const fill = (first: string, second: string): string =>
    question.fill({
      task: taskText.text,
      first,
      second,
      rationaleCharacters: limits.rationaleCharacters,
      citations: limits.citations,
      criteria: limits.criteria ? '"criteria", the better side for each; ' : '',
    });
  const retry = loadPrompt('evaluator-retry', 1).fill({ problems: RETRY_PROBLEMS });
  const empty = `${fill(fence('SUBMISSION A', '').text, fence('SUBMISSION B', '').text)}\n\n${retry}`;
  const fixedTokens = (await countTokens(system)) + (await countTokens(empty)) + TEMPLATE_TOKENS;
  const submissionTokens = evidenceBudget({
    contextTokens: endpoint.contextTokens,
    outputTokens: callTokens,
    safetyTokens,
    fixedTokens,
  });
  // Both get the same room whatever the other needs, so that a submission reads the same in every pair and order.
  const fit = { maxTokens: submissionTokens, countTokens };
  const a = await renderEvidence(options.a, fit);
  const b = await renderEvidence(options.b, fit);
  const first = fence('SUBMISSION A', a.text).text;
  const user = fill(first, fence('SUBMISSION B', b.text).text);
  return {
    system,
    user,
    sharedPrefix: user.slice(0, user.indexOf(first) + first.length),
    persona,
    truncations: [
      ...taskText.truncations.map((cut) => ({ ...cut, of: 'task' as const })),
      ...a.truncations.map((cut) => ({ ...cut, of: 'A' as const })),
      ...b.truncations.map((cut) => ({ ...cut, of: 'B' as const })),
    ],
    submissionTokens,
  };
}

/** "A:report.md", "report.md line 3" and the laboratory's own records count as known. */
function isKnown(citation: string, options: Pick<JudgeOptions, 'a' | 'b'>): boolean {
  const side = /^\s*([AB])\s*[:/ ]/.exec(citation)?.[1];
  const bundles = side === 'A' ? [options.a] : side === 'B' ? [options.b] : [options.a, options.b];
  if (/deliverable|files?\b|ended/i.test(citation)) return true;
  return bundles.some(({ tree, deliverables }) =>
    [...tree.entries, ...deliverables].some(({ path }) => citation.includes(path)),
  );
}
