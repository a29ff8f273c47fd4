import type { ExportReport, MergedModel } from '../../common/protocol/export.ts';
import { formatBytes, table } from './format.ts';

const loss = (value: number | null): string => (value === null ? '-' : value.toFixed(4));

/** Where the export of a cycle stands. */
export function renderExport(report: ExportReport): string {
  const { cycle, training, checkpoints, choice, adapter, parity, generation } = report;
  if (training === null) return `Cycle ${cycle} is not trained yet.`;
  const chosen = choice?.by === 'person' ? 'chosen by a person' : 'chosen for the lowest validation loss';
  return [
    `cycle ${cycle}, training ${training.trainingId}: ${training.state} at step ${training.step} of ${training.steps}`,
    '',
    table(
      ['checkpoint', 'validation', 'size', ''],
      checkpoints.map((row) => [
        String(row.step),
        loss(row.loss),
        formatBytes(row.bytes),
        row.chosen ? `${chosen}${choice?.note ? `: ${choice.note}` : ''}` : '',
      ]),
    ),
    ...(adapter === null
      ? []
      : ['', `adapter  ${adapter.path}`, `         rank ${adapter.rank}, ${formatBytes(adapter.bytes)}`]),
    ...(parity === null ? [] : parityLines(parity)),
    generation === null
      ? `L${cycle}       not registered`
      : `L${generation.number}       registered; its card is ${generation.card} in the data folder`,
  ].join('\n');
}

function parityLines({ parity, prompts, sameTop }: NonNullable<ExportReport['parity']>): string[] {
  const direction = parity.cosine === null ? 'no effect' : parity.cosine.toFixed(3);
  return [
    `parity   ${parity.passed ? 'passed' : 'FAILED'} over ${parity.positions} positions of ${prompts.length} ${prompts.length === 1 ? 'prompt' : 'prompts'}`,
    `         divergence ${parity.klAdapted.toPrecision(3)} nats (${parity.klBase.toPrecision(3)} without the adapter; at most ${parity.klLimit.toPrecision(3)})`,
    `         direction ${direction} (at least ${parity.cosineLimit.toFixed(3)}); strength ${parity.strength === null ? 'none' : parity.strength.toFixed(2)} (1 within ${parity.strengthTolerance.toFixed(2)})`,
    `         the adapter changes ${parity.klEffect.toPrecision(3)} nats`,
    `         same likeliest token at ${(100 * sameTop.adapted).toFixed(1)}% of positions`,
  ];
}

export const renderMerged = ({ folder, safetensors, gguf, ggufBytes, ggufSha256 }: MergedModel): string =>
  [
    `Merged into ${folder}`,
    `  ${safetensors}/  BF16 weights for transformers, vLLM and the like`,
    `  ${gguf}  ${formatBytes(ggufBytes)}, sha256 ${ggufSha256}`,
  ].join('\n');
