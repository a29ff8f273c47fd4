import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { silentLogger } from '../../common/base/logger.ts';
import type { ExperimentConfigInput } from '../../common/domain/config.ts';
import { createScriptedEndpoints, type ScriptedEndpointOptions } from '../endpoints/scripted-endpoint.ts';
import { createScriptedVocabulary } from '../endpoints/scripted-vocabulary.ts';
import type { ScoreRequest } from '../export/served-scores.ts';
import { createSandbox } from '../sandbox/detect.ts';
import type { GenerationTarget } from '../serve-target.ts';
import { recordCompletion } from '../stages/record-completion.ts';
import type { GenerationRow } from '../store/repositories/experiments.ts';
import type { Store } from '../store/store.ts';
import type { RunWorld } from '../world.ts';
import { scriptedTeam } from './scripted-team.ts';
import { createScriptedTrainer, type ScriptedTrainerOptions } from './scripted-trainer.ts';

/** Natural log-probabilities of one scored position of a generation; `registered`: it is one already. */
export type ServedRow = (generation: GenerationRow, registered: boolean) => readonly number[];

/** The scripted trainer's rows: what is registered is its base, what is not yet is adapted. */
export const servedLikeTrained: ServedRow = (_generation, registered) => {
  const first = registered ? 0.5 : 0.75;
  return [Math.log(first), Math.log(1 - first)];
};

interface Scoring {
  readonly target: GenerationTarget;
  readonly store: Store;
  readonly request: ScoreRequest;
}

function scoreScripted(rowOf: ServedRow, { target, store, request }: Scoring): { vocabulary: number } {
  const { generation, experiment } = target;
  const registered = store.experiments
    .generations(experiment.experimentId)
    .some((row) => row.adapterSha256 === generation.adapterSha256);
  const row = rowOf(generation, registered);
  const positions = request.prompts.length * request.lastPositions;
  const values = Float32Array.from({ length: positions * row.length }, (_, i) => row[i % row.length] ?? 0);
  writeFileSync(request.output, new Uint8Array(values.buffer), { flag: 'wx' });
  return { vocabulary: row.length };
}

/** Real store, real sandbox, real files; only the model is scripted. */
export function scriptedWorld(
  options: {
    latencyMs?: number;
    answer?: ScriptedEndpointOptions['answer'];
    trainer?: ScriptedTrainerOptions;
    served?: ServedRow;
  } = {},
): RunWorld {
  return {
    openSandbox: (experiment) => createSandbox(experiment.config.sandbox.mode, silentLogger),
    openEnvironment: () => Promise.resolve({ mounts: {}, env: {}, description: 'bash' }),
    serve: ({ generation }, store) =>
      Promise.resolve({
        endpoints: createScriptedEndpoints({
          answer: options.answer ?? scriptedTeam,
          onRecord: async (record) => recordCompletion(store, record),
          latencyMs: options.latencyMs ?? 0,
          modelSha256: generation.modelSha256,
          adapterSha256: generation.adapterSha256,
        }),
        dispose: () => Promise.resolve(),
      }),
    openVocabulary: () => Promise.resolve(createScriptedVocabulary()),
    openTrainer: () => Promise.resolve(createScriptedTrainer(options.trainer)),
    scoreServed: async (target, store, request) =>
      scoreScripted(options.served ?? servedLikeTrained, { target, store, request }),
    openLlamaSources: () => Promise.resolve('/dev/null'),
    retryDelay: () => 1,
  };
}

/** Three tasks without input files: one, two (train), three (test). */
export function writeTaskLibrary(folder: string): string {
  ['one', 'two', 'three'].forEach((id, i) => {
    const task = join(folder, id);
    mkdirSync(task, { recursive: true });
    const deliverables = [{ path: 'report.md', kind: 'report', description: 'what was found' }];
    writeFileSync(
      join(task, 'task.json'),
      JSON.stringify({ id, number: 11 + i, title: `Task ${id}`, domain: 'finance', deliverables }),
    );
    writeFileSync(join(task, 'prompt.md'), `Write report.md about task ${id}.\n`);
    writeFileSync(
      join(task, 'workflow.json'),
      JSON.stringify({
        agents: [{ agent_id: 'writer', role: 'writer', instruction: 'Write at LEVEL-1.', contract: 'report.md' }],
        hops: [{ from: 'orchestrator', to: 'writer', handoff: 'write' }],
      }),
    );
  });
  return folder;
}

/** A small cycle over `writeTaskLibrary`. */
export const scriptedConfig = (library: string): ExperimentConfigInput => ({
  model: { id: 'scripted', contextSize: 100_000, sequences: 1 },
  tasks: { library, train: ['one', 'two'], test: ['three'] },
  executor: { turnTokens: 1000, contextSafety: 100 },
  search: { updates: 2, callTokens: 4000 },
  judging: { callTokens: 2000 },
  collect: { runs: 4 },
  rank: { opponents: 3 },
  select: { train: 2, validate: 1 },
  parallel: 3,
});

/** Registers the model the configuration names; its file is never opened. */
export function registerScriptedModel(store: Pick<Store, 'append' | 'models'>): void {
  if (store.models.byId('scripted')) return;
  store.append({
    type: 'model.registered',
    modelId: 'scripted',
    path: '/dev/null',
    bytes: 0,
    sha256: '0'.repeat(64),
    architecture: 'scripted',
    source: 'test',
  });
}
