import { readFileSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { toErrorData } from '../../common/base/errors.ts';
import { meanDivergence, measureParity, type ScoredRows } from '../../common/domain/parity.ts';
import { type ParityReport, rowsOf, sameTopShare } from '../../common/domain/parity-report.ts';
import type { ComparisonAnswer, ComparisonOrder, ScoreFile } from './score-comparison.ts';

/** The thread of score-comparison.ts: reads four files, answers once and ends. */
function compare({ files, prompts, lastPositions }: ComparisonOrder): ParityReport {
  const trainerBase = readRows(files.trainerBase);
  const trainerAdapted = readRows(files.trainerAdapted);
  const servedBase = readRows(files.servedBase);
  const servedAdapted = readRows(files.servedAdapted);
  const parity = measureParity({ trainerBase, trainerAdapted, servedBase, servedAdapted });
  return {
    format: 1,
    vocabulary: trainerBase.vocabulary,
    lastPositions,
    prompts: prompts.map(({ window, ids }, i) => ({
      window,
      tokens: ids.length,
      klAdapted: meanDivergence(rowsOf(trainerAdapted, i, lastPositions), rowsOf(servedAdapted, i, lastPositions)),
    })),
    parity,
    sameTop: {
      base: sameTopShare(trainerBase, servedBase),
      adapted: sameTopShare(trainerAdapted, servedAdapted),
      trainerBaseAndAdapted: sameTopShare(trainerBase, trainerAdapted),
    },
  };
}

function readRows({ path, vocabulary }: ScoreFile): ScoredRows {
  const { buffer, byteOffset, length } = readFileSync(path);
  // Copied, because a small buffer may begin anywhere in a shared one. Every machine this runs on is little-endian.
  return { vocabulary, values: new Float32Array(buffer.slice(byteOffset, byteOffset + length)) };
}

let answer: ComparisonAnswer;
try {
  answer = { report: compare(workerData as ComparisonOrder) };
} catch (error) {
  answer = { error: toErrorData(error) };
}
parentPort?.postMessage(answer);
