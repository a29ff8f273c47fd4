import { z } from 'zod';
import { canonicalJson } from '../../../node/hashing.ts';
import type { JsonSchema } from '../../endpoints/endpoint.ts';

/** What the model writes. Property order is generation order: analysis before the plan. */
export const ProposalAnswer = z.object({
  changes: z.string(),
  reasons: z.string(),
  evidence_used: z.string(),
  agents: z
    .array(z.object({ agent_id: z.string(), role: z.string(), instruction: z.string(), contract: z.string() }))
    .min(1, 'the plan has no agents'),
  hops: z
    .array(z.object({ from: z.number().int(), to: z.number().int(), handoff: z.string(), recall: z.boolean() }))
    .min(1, 'the plan has no hops'),
  expected_impact: z.string(),
  checks: z.string(),
});
export type ProposalAnswer = z.infer<typeof ProposalAnswer>;

export interface ProposalLimits {
  readonly agents: number;
  readonly hops: number;
  readonly id: number;
  readonly role: number;
  /** of an instruction, and of a contract */
  readonly instruction: number;
  readonly handoff: number;
  /** of changes, reasons and the other notes */
  readonly note: number;
}

const clamp = (value: number, low: number, high: number): number => Math.min(high, Math.max(low, Math.floor(value)));

/**
 * Lengths that let the object end within the call: about two characters per token, half of them for the agents, a fifth
 * for the hops. A model that reasons first gets half of the call for the answer. llama.cpp refuses to repeat an
 * element 2,000 times, hence 1,900.
 */
export function proposalLimits(callTokens: number, thinking: boolean): ProposalLimits {
  const characters = (thinking ? callTokens / 2 : callTokens) * 2;
  const agents = clamp(characters / 600, 2, 8);
  const hops = clamp(agents * 2, 3, 16);
  const perAgent = (characters * 0.5) / agents;
  return {
    agents,
    hops,
    id: 32,
    role: clamp(perAgent * 0.12, 24, 120),
    instruction: clamp(perAgent * 0.36, 48, 1900),
    handoff: clamp((characters * 0.2) / hops - 40, 32, 600),
    note: clamp((characters * 0.3) / 5, 32, 1200),
  };
}

const text = (maxLength: number): JsonSchema => ({ type: 'string', minLength: 1, maxLength });
const closed = (properties: Record<string, JsonSchema>): JsonSchema => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
});
const list = (items: JsonSchema, maxItems: number): JsonSchema => ({ type: 'array', items, minItems: 1, maxItems });

/** Hops name agents by number, so that the grammar itself keeps them within the plan. */
export function proposalSchema(limits: ProposalLimits): JsonSchema {
  const seat = { enum: Array.from({ length: limits.agents + 1 }, (_, index) => index) };
  return closed({
    changes: text(limits.note),
    reasons: text(limits.note),
    evidence_used: text(limits.note),
    agents: list(
      closed({
        agent_id: text(limits.id),
        role: text(limits.role),
        instruction: text(limits.instruction),
        contract: text(limits.instruction),
      }),
      limits.agents,
    ),
    hops: list(
      closed({ from: seat, to: seat, handoff: text(limits.handoff), recall: { type: 'boolean' } }),
      limits.hops,
    ),
    expected_impact: text(limits.note),
    checks: text(limits.note),
  });
}

/** Lower-case words joined by hyphens; unique; never "orchestrator". */
function agentIds(answer: ProposalAnswer): string[] {
  const taken = new Set(['orchestrator']);
  return answer.agents.map(({ agent_id }, index) => {
    const slug = agent_id
      .toLowerCase()
      .replace(/[^a-z0-9_]+/g, '-')
      .replace(/^-+|-+$/g, '');
    const base = slug === '' || slug === 'orchestrator' ? `agent-${index + 1}` : slug;
    let id = base;
    for (let n = 2; taken.has(id); n++) id = `${base}-${n}`;
    taken.add(id);
    return id;
  });
}

/** Problems of the plan that its form alone does not exclude. */
export function answerProblems(answer: ProposalAnswer): string[] {
  const seats = answer.agents.length;
  const blank = answer.agents.flatMap((agent, index) =>
    (['role', 'instruction', 'contract'] as const)
      .filter((key) => agent[key].trim() === '')
      .map((key) => `agent ${index + 1} has an empty ${key}`),
  );
  const hops = answer.hops.flatMap(({ from, to }, index) => {
    const outside = [from, to].filter((seat) => seat < 0 || seat > seats);
    if (outside.length > 0) return [`hop ${index + 1} names agent ${outside[0]}, but there are ${seats}`];
    return from === to ? [`hop ${index + 1} leads from ${from} to itself`] : [];
  });
  return [...blank, ...hops];
}

/** The block's text: agents, then hops with agent ids, as JSON of two spaces. Call only without `answerProblems`. */
export function blockOf(answer: ProposalAnswer): string {
  const ids = agentIds(answer);
  const name = (seat: number): string => (seat === 0 ? 'orchestrator' : (ids[seat - 1] ?? ''));
  const agents = answer.agents.map((agent, index) => ({
    agent_id: ids[index],
    role: agent.role.trim(),
    instruction: agent.instruction.trim(),
    contract: agent.contract.trim(),
  }));
  const hops = answer.hops.map(({ from, to, handoff, recall }) => {
    const words = handoff.trim();
    return {
      from: name(from),
      to: name(to),
      handoff: recall && !/^recall\b/i.test(words) ? `recall: ${words}` : words,
    };
  });
  return JSON.stringify({ agents, hops }, null, 2);
}

/** Equal as JSON values, or as trimmed text when one is no JSON: order of keys and spaces do not make a new design. */
export function sameDesign(a: string, b: string): boolean {
  try {
    return canonicalJson(JSON.parse(a)) === canonicalJson(JSON.parse(b));
  } catch {
    return a.trim() === b.trim(); // A hand-written block need not be JSON.
  }
}
