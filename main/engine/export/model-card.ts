import { basename } from 'node:path';
import { z } from 'zod';
import type { ParityReport } from '../../common/domain/parity-report.ts';
import { WindowManifest } from '../../common/domain/window-set.ts';
import { Capabilities, TrainingPlan, TrainOrder } from '../../common/protocol/trainer.ts';
import { lineageCheckpoints } from '../stages/adapter-lineage.ts';
import type { ExperimentRow, GenerationRow } from '../store/repositories/experiments.ts';
import type { ModelRow } from '../store/repositories/models.ts';
import type { CheckpointRow, TrainingRow } from '../store/repositories/trainings.ts';
import type { Store } from '../store/store.ts';
import { parityNumbers } from './parity-gate.ts';
import type { StoredAdapter } from './store-adapter.ts';

export interface CardOrder {
  readonly store: Store;
  readonly experiment: ExperimentRow;
  readonly model: ModelRow;
  /** of the base, as far as it is known */
  readonly licence: string | null;
  readonly parent: GenerationRow;
  readonly made: GenerationRow;
  readonly training: TrainingRow;
  readonly checkpoint: CheckpointRow;
  readonly adapter: StoredAdapter;
  readonly report: ParityReport;
}

/** What a training's `orderHash` holds. */
const OrderRecord = z.object({ order: TrainOrder, plan: TrainingPlan.nullish(), capabilities: Capabilities.nullish() });

/** The model card of a generation: Markdown, of recorded facts only. */
export function modelCard(order: CardOrder): string {
  const sections = [heading(order), lineage(order), data(order), recipe(order), losses(order), parity(order)];
  return `${[...sections, use(order), licence(order)].map((lines) => lines.join('\n')).join('\n\n')}\n`;
}

/** One line, and no sign of a table or of markup: names and paths come from people. */
const plain = (text: string): string => text.replace(/\s+/g, ' ').replace(/([|`*_<>[\]\\])/g, '\\$1');
const number = (value: number): string => value.toLocaleString('en-US');
const loss = (value: number | null): string => (value === null ? 'none' : value.toFixed(4));
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string[] =>
  [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`);

function heading({ experiment, model, parent, made, adapter }: CardOrder): string[] {
  return [
    `# ${plain(experiment.name)} L${made.number}`,
    '',
    `Generation ${made.number} of the experiment "${plain(experiment.name)}", made by training L${parent.number} on its own selected runs.`,
    '',
    `- base: ${plain(model.modelId)}, ${plain(model.architecture)}, sha256 ${made.modelSha256}`,
    `- adapter: \`adapters/${adapter.adapterSha256}.gguf\`, rank ${adapter.rank}, f16, ${number(adapter.bytes)} bytes; it holds every adapter of the lineage`,
    `- configuration: sha256 ${experiment.configHash}; experiment created by MASS Lab ${plain(experiment.massVersion)}`,
  ];
}

function lineage({ store, parent, made, training, checkpoint }: CardOrder): string[] {
  const known = store.experiments.generations(made.experimentId);
  const checkpoints = [...lineageCheckpoints(store, parent), checkpoint];
  const rows = checkpoints.map(({ step, adapterSha256, trainingId }, i) => {
    const served = known.find((row) => row.number === i + 1) ?? made;
    return [`L${i + 1}`, trainingId, `step ${step}`, adapterSha256, served.adapterSha256 ?? ''];
  });
  return [
    '## Lineage',
    '',
    'Each generation is a new adapter on the one before it. L0 is the base without an adapter.',
    '',
    ...table(['generation', 'training', 'checkpoint', 'adapter as trained, sha256', 'as served, sha256'], rows),
    '',
    `The checkpoint of L${made.number} was chosen ${choiceOf(store, training)}.`,
  ];
}

function choiceOf(store: Store, { trainingId }: TrainingRow): string {
  const choice = store.trainings.choice(trainingId);
  if (choice?.chosenBy !== 'person') return 'for the lowest validation loss';
  return `by a person${choice.note === '' ? '' : `: ${plain(choice.note)}`}`;
}

function data({ store, training }: CardOrder): string[] {
  const set = store.windowSets.ofCycle(training);
  if (set?.windowSetId !== training.windowSetId) return ['## Data', '', `Window set ${training.windowSetId}.`];
  const manifest = WindowManifest.parse(store.artifacts.json(set.manifestHash));
  const splits = Object.entries(manifest.bySplit).map(([split, { windows, tokens, labelledTokens }]) => [
    split,
    ...[windows, tokens, labelledTokens].map(number),
  ]);
  const episodes = manifest.episodes.map(({ episodeId, taskId, split, counts, workflowOverlap }) => [
    plain(taskId),
    episodeId,
    split,
    number(counts.windows),
    number(counts.labelledTokens),
    `${(100 * workflowOverlap.share).toFixed(1)}%`,
  ]);
  return [
    '## Data',
    '',
    `Window set ${set.windowSetId}: manifest sha256 ${set.manifestHash}, tokens sha256 ${manifest.files.tokens}. Windows of at most ${number(manifest.windowTokens)} tokens; only what the model wrote is trained on, and the workflow text is not in the orchestrator's prompt.`,
    '',
    ...table(['split', 'windows', 'tokens', 'trained tokens'], splits),
    '',
    ...table(['task', 'episode', 'split', 'windows', 'trained tokens', 'workflow words left in them'], episodes),
  ];
}

function recipe({ store, training }: CardOrder): string[] {
  const record = OrderRecord.safeParse(store.artifacts.json(training.orderHash)).data;
  if (!record) return ['## Recipe', '', `Recorded as artifact ${training.orderHash}.`];
  const { order, plan, capabilities: machine } = record;
  const settings = Object.entries(order.recipe).map(([name, value]) => [name, plain(JSON.stringify(value))]);
  const { base } = order.model;
  return [
    '## Recipe',
    '',
    `LoRA on ${plan ? `${number(plan.adaptedModules)} modules` : 'linear layers'}, base weights frozen, read from a ${base.kind === 'gguf' ? 'GGUF file' : 'folder of safetensors'} (${plain(basename(base.path))}).`,
    '',
    ...table(['setting', 'value'], settings),
    ...(machine
      ? [
          '',
          `Trained on ${plain(machine.device)} with Python ${plain(machine.python)}, torch ${plain(machine.torch)}, transformers ${plain(machine.transformers)}, peft ${plain(machine.peft)}.`,
        ]
      : []),
  ];
}

function losses({ store, training, checkpoint }: CardOrder): string[] {
  const steps = store.trainings.steps(training.trainingId);
  const validations = store.trainings.validations(training.trainingId);
  const seconds = steps.reduce((sum, row) => sum + row.seconds, 0);
  const [first, last] = [steps[0], steps.at(-1)];
  return [
    '## Losses',
    '',
    `Training ${training.state} at step ${training.step} of ${training.steps}, ${(seconds / 3600).toFixed(2)} hours of steps. ` +
      `Training loss in nats per token: ${loss(first?.loss ?? null)} at the first step, ${loss(last?.loss ?? null)} at the last.`,
    '',
    ...table(
      ['step', 'validation loss', ''],
      validations.map((row) => [String(row.step), loss(row.loss), row.step === checkpoint.step ? 'chosen' : '']),
    ),
  ];
}

function parity({ report }: CardOrder): string[] {
  const percent = (share: number): string => `${(100 * share).toFixed(1)}%`;
  const { parity: measured, sameTop } = report;
  return [
    '## Parity',
    '',
    `Passed: ${parityNumbers(measured)}. Measured at ${measured.positions} positions of ${report.prompts.length} ${report.prompts.length === 1 ? 'excerpt' : 'excerpts'} of the data, between the trainer's model and the model as it is served.`,
    '',
    ...table(
      ['', 'value'],
      [
        ['divergence trainer to served without the new adapter, nats', measured.klBase.toPrecision(3)],
        ['divergence trainer to served with it, nats', measured.klAdapted.toPrecision(3)],
        ['what the adapter changes in the trainer, nats', measured.klEffect.toPrecision(3)],
        ['the same as root mean square over ids, nats', measured.effect.toPrecision(3)],
        ['what serving changes without it, root mean square, nats', measured.noise.toPrecision(3)],
        ['same likeliest token, trainer and served, without it', percent(sameTop.base)],
        ['same likeliest token, trainer and served, with it', percent(sameTop.adapted)],
      ],
    ),
  ];
}

function use({ experiment, made }: CardOrder): string[] {
  return [
    '## Use',
    '',
    `Serve the base with the adapter (llama.cpp: \`--lora\`). A merged model is made by \`mass export\` with \`--merge\`, for cycle ${made.number} of "${plain(experiment.name)}". The adapter works with the base named above and no other.`,
  ];
}

function licence({ licence: base, model }: CardOrder): string[] {
  return [
    '## Licence',
    '',
    base === null
      ? `The licence of the base is not recorded in its file; it came from ${plain(model.source)}. An adapter and a merged model are made from the base, so its licence governs what may be done with them.`
      : `The base is under ${plain(base)}. An adapter and a merged model are made from the base, so its licence governs what may be done with them.`,
  ];
}
