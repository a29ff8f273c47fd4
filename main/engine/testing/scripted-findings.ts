import type { ExperimentConfigInput } from '../../common/domain/config.ts';
import type { ScriptedEndpointOptions } from '../endpoints/scripted-endpoint.ts';
import { scriptedTeam } from './scripted-team.ts';
import { scriptedConfig } from './scripted-world.ts';

/**
 * The scripted team, whose runs now rank by their number (the highest first), and whose collected runs named here (1-based)
 * leave a placeholder in their report, which is one finding each.
 */
export function teamWithFindings(bad: Readonly<Record<string, readonly number[]>>): ScriptedEndpointOptions['answer'] {
  return (owner, request) => {
    const answer = scriptedTeam(owner, request);
    const call = answer.toolCalls?.[0];
    const prompt = request.messages.map((message) => message.content).join('\n');
    // The request's seed is the episode's: ... + 100 task + run.
    const run = (request.sampling.seed % 100) + 1;
    const isBad = Object.entries(bad).some(
      ([task, runs]) => prompt.includes(`about task ${task}.`) && runs.includes(run),
    );
    if (!call || !isBad || !prompt.includes('How to carry this out')) return answer;
    const { path, content } = JSON.parse(call.arguments) as { path: string; content: string };
    return {
      ...answer,
      toolCalls: [{ ...call, arguments: JSON.stringify({ path, content: `${content}\nTODO: the numbers\n` }) }],
    };
  };
}

/** Four runs of each task; two train, one validates. */
export const findingsConfig = (library: string): ExperimentConfigInput => ({
  ...scriptedConfig(library),
  seedPolicy: 'episode',
});
