import { parseLooseJson } from '../../../common/base/parse-json.ts';
import type { Deliverable } from '../../../common/domain/task.ts';
import type { FoundFile } from '../../workspace/locate.ts';
import type { FileReading } from '../../workspace/read-file.ts';
import type { DeliverableCheck } from './bundle.ts';

/** What a program can say of one named deliverable without judging it. `found` undefined: nothing has that path. */
export function checkDeliverable(deliverable: Deliverable, found: FoundFile | undefined): DeliverableCheck {
  const base = { path: deliverable.path, kind: deliverable.kind };
  if (found === undefined) return { ...base, status: 'missing', bytes: null, facts: [] };
  const { reading } = found;
  if (reading === null) return { ...base, status: 'not-a-file', bytes: null, facts: ['not a readable regular file'] };
  if (reading.bytes === 0) return { ...base, status: 'empty', bytes: 0, facts: [] };
  const text = reading.text === null ? null : reading.text.head + reading.text.tail;
  if (text !== null && text.trim() === '')
    return { ...base, status: 'empty', bytes: reading.bytes, facts: ['only white space'] };
  return { ...base, status: 'present', bytes: reading.bytes, facts: factsOf(deliverable, reading, text) };
}

function factsOf(deliverable: Deliverable, reading: FileReading, text: string | null): string[] {
  const facts: string[] = [];
  if (/\.png$/i.test(deliverable.path))
    facts.push(reading.image ? `PNG of ${reading.image.width}x${reading.image.height} pixels` : 'not a PNG image');
  const wantsText = deliverable.kind !== 'plot' && deliverable.kind !== 'data';
  if (wantsText && text === null) facts.push('binary where text is expected');
  if (/\.json$/i.test(deliverable.path) && text !== null) {
    if (reading.text?.unreadBytes) facts.push('too large to parse here');
    else facts.push(...jsonFacts(text, deliverable.kind === 'metrics'));
  }
  if (deliverable.kind === 'report' && text !== null) {
    const words = text.split(/\s+/).filter((word) => word !== '').length;
    facts.push(`${words} words`);
  }
  return facts;
}

/**
 * Python writes bare NaN and Infinity into JSON, which the standard forbids: they are read as invalid numbers and
 * counted, not taken for a broken file. Numbers written as the strings "nan" or "inf" count as invalid too.
 */
export function jsonFacts(text: string, isMetrics: boolean): string[] {
  const json = parseLooseJson(text, Number.POSITIVE_INFINITY); // what is parsed here is bounded in size
  if ('problem' in json) return ['not valid JSON'];
  const facts: string[] = [];
  if (json.bareNumbers > 0) facts.push('contains bare NaN or Infinity, which standard JSON forbids');
  if (!isMetrics) return facts;
  const counts = countNumbers(json.value);
  const total = counts.finite + counts.invalid + counts.missing;
  if (counts.finite === 0)
    facts.push(total === 0 ? 'holds no number' : `none of its ${total} values is a finite number`);
  else if (counts.invalid + counts.missing > 0)
    facts.push(`${counts.invalid + counts.missing} of ${total} values are NaN, infinite or null`);
  else facts.push(`${counts.finite} finite numbers`);
  return facts;
}

function countNumbers(root: unknown): { finite: number; invalid: number; missing: number } {
  const counts = { finite: 0, invalid: 0, missing: 0 };
  const open: unknown[] = [root];
  while (open.length > 0) {
    const value = open.pop();
    if (value === null) counts.missing++;
    else if (typeof value === 'number') Number.isFinite(value) ? counts.finite++ : counts.invalid++;
    else if (typeof value === 'string' && /^[+-]?(nan|inf(inity)?)$/i.test(value.trim())) counts.invalid++;
    else if (typeof value === 'object') for (const inner of Object.values(value)) open.push(inner);
  }
  return counts;
}
