import { z } from 'zod';

/**
 * The configuration of an experiment. It is parsed once, frozen with the experiment and never changed: a run with a
 * different one is refused. Defaults are the paper's (docs/method.md names the source of each).
 */
const Seeds = z.tuple([z.number().int(), z.number().int()]).describe('seed base of cycle 1 and of cycle 2');

export const ModelConfig = z.strictObject({
  id: z.string().min(1).describe('registry id of the model that plays every part'),
  contextSize: z.number().int().min(512).default(131_072).describe('tokens per sequence'),
  sequences: z.number().int().min(1).max(64).default(4).describe('conversations held in memory at once'),
  gpu: z.enum(['auto', 'cuda', 'metal', 'vulkan', 'off']).default('auto'),
  kvType: z.enum(['f16', 'q8_0']).default('f16'),
});

export const SamplingConfig = z.strictObject({
  temperature: z.number().min(0).default(0.6),
  topP: z.number().gt(0).max(1).default(0.95),
  topK: z.number().int().min(0).default(20),
  thinking: z.boolean().default(true),
});

export const ExecutorConfig = z.strictObject({
  runtime: z.enum(['team']).default('team'),
  turnTokens: z.number().int().positive().default(32_768).describe('output tokens of one turn'),
  orchestratorTurns: z.number().int().positive().default(120),
  workerTurns: z.number().int().positive().default(60),
  maxDelegations: z.number().int().min(0).default(32),
  episodeTokens: z
    .number()
    .int()
    .positive()
    .default(2_000_000)
    .describe('generated tokens of all threads of an episode'),
  wallSeconds: z
    .number()
    .positive()
    .default(6 * 3600),
  contextSafety: z.number().int().min(0).default(8192).describe('tokens of the context kept free'),
  onTurnLimit: z
    .enum(['halt', 'wrap-up'])
    .default('halt')
    .describe('wrap-up asks once for the final report without tools; halt ends the episode as halted'),
  commandSeconds: z.number().positive().default(600),
});

export const SandboxConfig = z.strictObject({
  mode: z.enum(['bubblewrap', 'host']).default('bubblewrap').describe('host runs model-written commands unprotected'),
  memoryMiB: z.number().int().positive().default(8192),
  processes: z.number().int().positive().default(256),
  fileMiB: z.number().int().positive().default(2048).describe('largest single file'),
  diskMiB: z.number().int().positive().default(8192).describe('all files of a workspace'),
  cpuSeconds: z.number().positive().default(3600).describe('CPU time of one command'),
});

export const SearchConfig = z.strictObject({
  policy: z.enum(['fixed-reference', 'elite']).default('fixed-reference'),
  updates: z.number().int().min(0).max(100).default(11),
  requireProvenWin: z.boolean().default(true),
  searchTestTasks: z.boolean().default(true),
  seedBase: Seeds.default([450_000, 1_450_000]),
  callTokens: z.number().int().positive().default(49_152).describe('output tokens of a proposer call'),
});

export const JudgingConfig = z.strictObject({
  orders: z
    .union([z.literal(1), z.literal(2)])
    .default(2)
    .describe('2: both orders, disagreement is a tie; 1: incumbent shown as A'),
  callTokens: z.number().int().positive().default(49_152),
});

export const CollectConfig = z.strictObject({
  runs: z.number().int().min(2).default(18),
  seedBase: Seeds.default([710_000, 1_710_000]),
});

export const RankConfig = z.strictObject({
  opponents: z.number().int().min(1).default(6),
  scheduleSeed: z.number().int().default(1234),
  iterations: z.number().int().positive().default(500),
});

export const SelectConfig = z.strictObject({
  train: z.number().int().min(1).default(15),
  validate: z.number().int().min(0).default(1),
});

export const RenderConfig = z.strictObject({
  windowTokens: z.number().int().min(64).default(49_152).describe('longest window of training data'),
  overlapTokens: z.number().int().min(0).default(8192).describe('earlier context shown in a window, masked'),
  ngram: z.number().int().min(1).default(8).describe('words of a run when counting what is left of the workflow text'),
});

export const TrainConfig = z.strictObject({
  base: z
    .string()
    .nullable()
    .default(null)
    .describe('folder with the safetensors of the served model; null: from its GGUF, where that is exact'),
  rank: z.number().int().positive().default(64),
  alpha: z.number().positive().default(128),
  dropout: z.number().min(0).max(0.9).default(0.05),
  steps: z.number().int().positive().nullable().default(null).describe('null: as many as `epochs` takes'),
  epochs: z.number().positive().default(2).describe('ceil(epochs x training windows / windowsPerStep) steps'),
  windowsPerStep: z.number().int().positive().default(3),
  learningRate: z.number().positive().default(3e-5),
  warmupSteps: z.number().int().min(0).default(5),
  checkpointEvery: z.number().int().positive().default(50),
  validateEvery: z.number().int().positive().default(150),
  patience: z.number().int().min(0).default(3).describe('stop when validation loss rose this often in a row; 0: never'),
  lossChunk: z.number().int().positive().default(512).describe('labelled positions per chunk of the cross-entropy'),
  seed: z.number().int().default(42),
  device: z.enum(['auto', 'cpu', 'cuda', 'mps']).default('auto'),
  threads: z.number().int().min(0).default(0).describe('0: as many as the machine has cores'),
  allowSlowKernels: z.boolean().default(false).describe('train a hybrid model on CUDA without flash-linear-attention'),
});

export const IntegrityConfig = z.strictObject({
  quarantine: z
    .boolean()
    .default(true)
    .describe('a run with a finding that is not cleared is left out of the selection; checks run and are shown anyway'),
});

export const GatesConfig = z
  .strictObject({
    beforeTrain: z.boolean().default(true),
    beforeRegister: z.boolean().default(true).describe('before a trained generation may play a part'),
    onFindings: z.boolean().default(true).describe('before a cut that undecided findings would change'),
  })
  .describe('where a run stops until a person approves');

export const ExperimentConfig = z
  .strictObject({
    model: ModelConfig,
    tasks: z.strictObject({
      library: z.string().default('builtin').describe('"builtin" or a folder with one sub-folder per task'),
      train: z.array(z.string()).min(1).describe('task ids'),
      test: z.array(z.string()).default([]),
    }),
    sampling: SamplingConfig.prefault({}),
    seedPolicy: z.enum(['turn', 'episode']).default('turn'),
    executor: ExecutorConfig.prefault({}),
    sandbox: SandboxConfig.prefault({}),
    search: SearchConfig.prefault({}),
    judging: JudgingConfig.prefault({}),
    collect: CollectConfig.prefault({}),
    rank: RankConfig.prefault({}),
    select: SelectConfig.prefault({}),
    integrity: IntegrityConfig.prefault({}),
    gates: GatesConfig.prefault({}),
    render: RenderConfig.prefault({}),
    train: TrainConfig.prefault({}),
    parallel: z.number().int().min(1).max(64).default(4),
  })
  .superRefine((config, context) => {
    const overlap = config.tasks.train.filter((id) => config.tasks.test.includes(id));
    if (overlap.length > 0)
      context.addIssue({
        code: 'custom',
        path: ['tasks'],
        message: `Tasks ${overlap.join(', ')} are in both train and test; a task belongs to one split.`,
      });
    for (const split of ['train', 'test'] as const) {
      const twice = config.tasks[split].filter((id, i, ids) => ids.indexOf(id) !== i);
      if (twice.length > 0)
        context.addIssue({
          code: 'custom',
          path: ['tasks', split],
          message: `${twice.join(', ')} is named twice; name a task once.`,
        });
    }
    if (config.select.train + config.select.validate > config.collect.runs)
      context.addIssue({
        code: 'custom',
        path: ['select'],
        message: `select keeps ${config.select.train + config.select.validate} runs but collect makes ${config.collect.runs}; raise collect.runs or lower select.`,
      });
  });
export type ExperimentConfig = z.infer<typeof ExperimentConfig>;
export type ExperimentConfigInput = z.input<typeof ExperimentConfig>;
