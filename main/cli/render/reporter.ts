import type { StoredEvent } from '../../common/domain/events.ts';
import type { Progress } from '../../common/protocol/engine.ts';
import { createEventDescriber } from './describe-event.ts';
import { formatBytes, formatCount, formatSeconds, formatTime, printable } from './format.ts';

/** A stream for a person: standard error, so that standard output stays the result. */
export interface ReportStream {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

export interface Reporter {
  event(event: StoredEvent): void;
  progress(progress: Progress): void;
  say(line: string): void;
  /** Leaves the cursor on a fresh line. */
  end(): void;
}

export const silentReporter: Reporter = {
  event: () => undefined,
  progress: () => undefined,
  say: () => undefined,
  end: () => undefined,
};

/** On a terminal one line, redrawn; elsewhere a timestamped line per event worth telling and per tenth of a download. */
export function createReporter(stream: ReportStream, now: () => number = Date.now): Reporter {
  const describer = createEventDescriber();
  let drawn = false;
  let told = '';
  const redraw = (text: string): void => {
    const width = (stream.columns ?? 80) - 1;
    stream.write(`\r\u001b[2K${text.length > width ? `${text.slice(0, width - 1)}…` : text}`);
    drawn = true;
  };
  const end = (): void => {
    if (drawn) stream.write('\n');
    drawn = false;
  };
  return {
    event: ({ at, event }) => {
      const line = printable(describer.line(event));
      if (!describer.worthTelling(event)) return;
      if (stream.isTTY) redraw(line);
      else stream.write(`${formatTime(at)} ${line}\n`);
    },
    progress: (progress) => {
      if (stream.isTTY) return redraw(printable(progressText(progress)));
      const step = progress.total ? Math.floor((progress.done / progress.total) * 10) : 0;
      const mark = `${progress.label} ${step}`;
      if (mark === told) return;
      told = mark;
      stream.write(`${formatTime(now())} ${printable(progressText(progress))}\n`);
    },
    say: (line) => {
      end();
      stream.write(`${printable(line)}\n`);
    },
    end,
  };
}

export function progressText({ label, done, total, unit, etaSeconds }: Progress): string {
  const amount = (value: number): string => (unit === 'bytes' ? formatBytes(value) : formatCount(value));
  const of = total === null ? '' : ` of ${amount(total)}${total > 0 ? ` (${Math.floor((done / total) * 100)} %)` : ''}`;
  return `${label}: ${amount(done)}${of}${etaSeconds === null ? '' : `, about ${formatSeconds(etaSeconds)} left`}`;
}
