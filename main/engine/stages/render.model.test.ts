import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLogger } from '../../common/base/logger.ts';
import { ExperimentConfig, type ExperimentConfigInput } from '../../common/domain/config.ts';
import { composeTeacherPrompt } from '../../common/domain/workflow-block.ts';
import { smolLm2Model } from '../../inference/testing/smollm2.ts';
import { sha256File } from '../../node/file-hash.ts';
import { loadPrompt } from '../../node/prompts.ts';
import { createCycleServices } from '../cycle-services.ts';
import { createExperiment, requireExperiment } from '../experiments.ts';
import { createDeviceLease, type DeviceLease } from '../lease/lease.ts';
import type { StageContext } from '../runner/stage.ts';
import type { GenerationTarget } from '../serve-target.ts';
import { openStore, type Store } from '../store/store.ts';
import { type ReadWindow, readWindowSet } from '../testing/read-window-set.ts';
import { scriptedWorld } from '../testing/scripted-world.ts';
import { localWorld } from '../world.ts';
import { renderStage } from './render.ts';
import { runEpisode } from './run-episode.ts';
import type { CycleServices } from './services.ts';

/** Episodes of the real demo model, its own template and tokenizer, and a vocabulary process that never loads its weights. */
const config: ExperimentConfigInput = {
  model: { id: 'smollm2', contextSize: 4096, sequences: 1, gpu: 'off' },
  tasks: { library: 'builtin', train: ['drug-safety'], test: [] },
  sampling: { temperature: 0.6, topP: 0.95, topK: 20, thinking: false },
  executor: {
    turnTokens: 90,
    orchestratorTurns: 3,
    workerTurns: 2,
    maxDelegations: 1,
    episodeTokens: 600,
    contextSafety: 64,
    onTurnLimit: 'wrap-up',
    commandSeconds: 20,
  },
  search: { callTokens: 600 },
  judging: { callTokens: 600 },
  collect: { runs: 2 },
  select: { train: 1, validate: 1 },
  render: { windowTokens: 2048, overlapTokens: 256 },
  parallel: 1,
};

let folder: string;
let store: Store;
let lease: DeviceLease<GenerationTarget>;
let services: CycleServices;
let context: StageContext;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'mass-render-model-'));
  store = openStore(folder);
  const path = await smolLm2Model();
  const sha256 = await sha256File(path);
  store.append({
    type: 'model.registered',
    modelId: 'smollm2',
    path,
    bytes: 0,
    sha256,
    architecture: 'llama',
    source: 'test',
  });
  await createExperiment(store, { name: 'real', config, massVersion: 'test' });
  const experiment = requireExperiment(store, 'real');
  const world = localWorld(folder, silentLogger);
  lease = createDeviceLease((target) => world.serve(target, store));
  const generation = store.experiments.generations(experiment.experimentId)[0]!;
  services = createCycleServices({
    store,
    experiment,
    generation,
    lease,
    openVocabulary: (target) => world.openVocabulary(target, store),
    openTrainer: () => Promise.reject(new Error('Rendering needs no trainer.')),
    scoreServed: () => Promise.reject(new Error('Rendering scores nothing.')),
    llamaSources: () => Promise.reject(new Error('Rendering converts nothing.')),
    sandbox: await scriptedWorld().openSandbox(experiment),
    environment: { mounts: {}, env: {}, description: 'bash' },
    logger: silentLogger,
  });
  context = {
    experimentId: experiment.experimentId,
    cycle: 1,
    config: ExperimentConfig.parse(config),
    tasks: null,
    signal: new AbortController().signal,
    draining: () => false,
    slot: (work) => work(),
    gate: async () => undefined,
    doing: () => undefined,
  };
}, 300_000);
afterAll(async () => {
  await lease?.dispose();
  store?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Collects both runs with the task's own workflow and selects them, as the stages before would have. */
async function collect(): Promise<void> {
  const task = await services.loadTask('drug-safety');
  const prompt = composeTeacherPrompt({
    barePrompt: task.barePrompt,
    block: task.initialWorkflow,
    directive: loadPrompt('execution-directive', 1).text,
  });
  const episodes: string[] = [];
  for (const replicate of [0, 1]) {
    const spec = { stage: 'collect', task, workflowVersion: 0, replicate, seed: 7 + replicate, prompt } as const;
    episodes.push((await runEpisode(services, context, spec)).episodeId);
  }
  store.append({
    type: 'selection.made',
    experimentId: context.experimentId,
    cycle: 1,
    taskId: 'drug-safety',
    provenWin: true,
    flagged: false,
    flagJson: '[]',
    entries: episodes.map((episodeId, i) => ({ episodeId, rank: i + 1, decision: i === 0 ? 'train' : 'validate' })),
  });
}

describe('rendering episodes of a real model', () => {
  it('gives windows of the served tokenizer with every sampled id once and the bare prompt before them', async () => {
    await collect();
    await lease.release();
    const { complete } = await renderStage(services).run(context);
    expect(complete).toBe(true);
    expect(lease.holder()).toBeNull();
    const row = store.windowSets.ofCycle(context);
    const { manifest, windows } = readWindowSet(join(folder, row?.folder ?? ''));
    const completions = manifest.episodes.flatMap(({ episodeId }) =>
      store.threads.completionsOfOwner('attempt', store.episodes.settledAttempt(episodeId)?.attemptId ?? ''),
    );
    const trained = windows.flatMap((window) =>
      window.blocks
        .filter((block) => block.part === 'loss')
        .map((block) => [block.completionId, window.ids.slice(block.start, block.end)] as const),
    );
    expect(new Map(trained)).toEqual(
      new Map(completions.map((completion) => [completion.completionId, store.artifacts.ids(completion.sampledHash)])),
    );
    expect(trained).toHaveLength(completions.length);

    const vocabulary = await services.openVocabulary();
    try {
      const { barePrompt } = await services.loadTask('drug-safety');
      const spell = async ({ ids, blocks }: ReadWindow, i: number): Promise<string> => {
        const block = blocks[i];
        const [text] = await vocabulary.spell([Uint32Array.from(ids.slice(block?.start, block?.end))]);
        return text ?? '';
      };
      for (const window of windows.filter(({ role }) => role === 'orchestrator')) {
        const header = await spell(window, 0);
        expect(header).toMatch(/^<\|im_start\|>system\n.*<\|im_end\|>\n<\|im_start\|>user\n.*<\|im_end\|>\n$/s);
        expect(header.endsWith(`<|im_start|>user\n${barePrompt}<|im_end|>\n`)).toBe(true);
        const last = window.blocks.length - 1;
        expect(await spell(window, last - 1)).toBe('<|im_start|>assistant\n');
        expect(window.blocks[last]?.part).toBe('loss');
      }
    } finally {
      await vocabulary.dispose();
    }
  });
});
