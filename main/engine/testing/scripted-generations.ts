import type { AssistantMessage } from '../../common/domain/chat.ts';
import type { ScriptedEndpointOptions } from '../endpoints/scripted-endpoint.ts';
import type { Store } from '../store/store.ts';
import type { RunWorld } from '../world.ts';
import { scriptedTeam } from './scripted-team.ts';
import { scriptedWorld } from './scripted-world.ts';

type Answer = ScriptedEndpointOptions['answer'];

/** A scripted world in which what is said may depend on the generation that is served. */
export function generationsWorld(answerOf: (generation: number) => Answer, latencyMs = 0): RunWorld {
  return {
    ...scriptedWorld(),
    serve: (target, store) =>
      scriptedWorld({ answer: answerOf(target.generation.number), latencyMs }).serve(target, store),
  };
}

/** Registers L1 of an experiment with another adapter, as an export would. */
export function registerL1(store: Store, experimentName: string): void {
  const experimentId = store.experiments.byName(experimentName)?.experimentId ?? '';
  const [l0, l1] = store.experiments.generations(experimentId);
  if (!l0 || l1) return;
  const { modelId, modelSha256 } = l0;
  store.append({
    type: 'generation.registered',
    generationId: `${experimentId}-L1`,
    experimentId,
    number: 1,
    modelId,
    modelSha256,
    parentGenerationId: l0.generationId,
    adapterSha256: 'a'.repeat(64),
  });
}

const say = (content: string): AssistantMessage => ({ role: 'assistant', content });
const call = (name: string, args: object): AssistantMessage => ({
  role: 'assistant',
  content: '',
  toolCalls: [{ id: `call_${name}`, name, arguments: JSON.stringify(args) }],
});

/**
 * Rollouts of the tasks with numbers 11, 12, 13 (needs `seedPolicy: 'episode'`, so that a seed names task and run).
 * L1 delegates on 11 and writes quality 5, on 12 only 1. L0 writes 3; on 12 its second run says nothing until it is
 * halted, on 13 its second run writes 5. The evaluator prefers the higher quality.
 */
export function scriptedRollouts(generation: number): Answer {
  return (owner, request) => {
    if (!owner.startsWith('attempt:')) return scriptedTeam(owner, request);
    const seed = request.sampling.seed - 910_000;
    const [task, run] = [Math.floor(seed / 100), seed % 100];
    const tools = request.messages.filter((message) => message.role === 'tool').length;
    if (request.messages[0]?.content.includes('worker') && !request.tools?.some((tool) => tool.name === 'delegate'))
      return say('Done.');
    if (generation === 0 && task === 12 && run === 1) return say('');
    if (generation === 1 && task === 11 && tools === 0) return call('delegate', { role: 'aide', assignment: 'look' });
    const written = tools > (generation === 1 && task === 11 ? 1 : 0);
    const quality = generation === 1 ? (task === 12 ? 1 : 5) : task === 13 && run === 1 ? 5 : 3;
    return written
      ? say('The report is written.')
      : call('write_file', { path: 'report.md', content: `# Report\n\nquality: ${quality}\n` });
  };
}
