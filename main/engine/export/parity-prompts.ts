import { createReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { MassError } from '../../common/base/errors.ts';
import { type WindowBlock, WindowRecord, windowFiles } from '../../common/domain/window-set.ts';

export interface ParityPrompt {
  /** index of the window it is cut from */
  readonly window: number;
  readonly ids: readonly number[];
}

export interface PromptLimits {
  /** prompts at most */
  readonly count: number;
  /** positions scored per prompt; no prompt is shorter */
  readonly lastPositions: number;
  /** tokens of a prompt at most: its context before the scored positions is cut at its beginning */
  readonly longest: number;
}

interface Cut {
  readonly window: number;
  /** first and one past the last token, counted in the file */
  readonly start: number;
  readonly end: number;
}

/**
 * Prompts for the parity gate, the same for the same window set: excerpts of validation windows (of training windows when
 * there are none), spread evenly over their trained answers, whose last positions predict the beginning of one.
 * Errors: `invalid_input` when no window can give one.
 */
export async function parityPrompts(folder: string, limits: PromptLimits): Promise<ParityPrompt[]> {
  const cuts = spread(await cutsOf(folder, limits), limits.count);
  if (cuts.length === 0)
    throw new MassError(
      'invalid_input',
      `No window of ${folder} is long enough to compare the trainer with the served model: each has fewer than ${limits.lastPositions} tokens before its end.`,
    );
  const file = await open(join(folder, windowFiles.tokens), 'r');
  try {
    const prompts: ParityPrompt[] = [];
    for (const cut of cuts) prompts.push({ window: cut.window, ids: await readIds(file, cut) });
    return prompts;
  } finally {
    await file.close();
  }
}

async function cutsOf(folder: string, limits: PromptLimits): Promise<Cut[]> {
  const bySplit: Record<WindowRecord['split'], Cut[]> = { train: [], validate: [] };
  const lines = createInterface({ input: createReadStream(join(folder, windowFiles.windows)), crlfDelay: Infinity });
  for await (const line of lines) {
    const record = WindowRecord.parse(JSON.parse(line));
    bySplit[record.split].push(...cutsOfWindow(record, limits));
  }
  return bySplit.validate.length > 0 ? bySplit.validate : bySplit.train;
}

/** One for each trained answer. Position i is predicted from i - 1: the last id of a prompt predicts the token after it. */
function cutsOfWindow(window: WindowRecord, { lastPositions, longest }: PromptLimits): Cut[] {
  const { index, offset, length, blocks } = window;
  const trained = blocks.filter((block: WindowBlock) => block.part === 'loss' && block.end > lastPositions);
  return trained.map((block) => {
    const end = Math.min(block.end - 1, Math.max(lastPositions, block.start + lastPositions - 1), length - 1);
    return { window: index, start: offset + Math.max(0, end - longest), end: offset + end };
  });
}

function spread<T>(items: readonly T[], count: number): T[] {
  if (items.length <= count) return [...items];
  return Array.from({ length: count }, (_, i) => items[Math.floor((i * items.length) / count)] as T);
}

async function readIds(file: FileHandle, { start, end }: Cut): Promise<number[]> {
  const bytes = Buffer.alloc((end - start) * 4);
  const { bytesRead } = await file.read(bytes, 0, bytes.length, start * 4);
  if (bytesRead < bytes.length) throw new MassError('invalid_input', 'The window set is cut short; render it again.');
  return Array.from({ length: end - start }, (_, i) => bytes.readUInt32LE(i * 4));
}
