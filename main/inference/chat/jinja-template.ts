import { Environment, Interpreter, parse, tokenize } from '@huggingface/jinja';
import { MassError } from '../../common/base/errors.ts';

export interface JinjaOptions {
  readonly modelId: string;
  readonly source: string;
  readonly bosToken: string | null;
  readonly eosToken: string | null;
  /** What `strftime_now` reads. One moment for the life of the format: a date that moves would invalidate prefixes. */
  readonly now: Date;
}

const constants = { true: true, True: true, false: false, False: false, none: null, None: null };

/** A model's own chat template. Blocks are trimmed as the training libraries do. */
export class JinjaTemplate {
  readonly source: string;
  readonly #options: JinjaOptions;
  readonly #program: ReturnType<typeof parse>;

  /** @throws MassError invalid_input when the template does not parse */
  constructor(options: JinjaOptions) {
    this.#options = options;
    this.source = options.source;
    try {
      this.#program = parse(tokenize(options.source, { lstrip_blocks: true, trim_blocks: true }));
    } catch (cause) {
      throw new MassError('invalid_input', `The chat template of ${options.modelId} is damaged; use another file.`, {
        cause,
      });
    }
  }

  /** @throws MassError invalid_input with the template's own reason when it refuses the conversation */
  render(variables: Readonly<Record<string, unknown>>): string {
    const { modelId, bosToken, eosToken, now } = this.#options;
    const environment = new Environment();
    const globals = {
      ...constants,
      range,
      bos_token: bosToken ?? '',
      eos_token: eosToken ?? '',
      ...variables,
      strftime_now: (format: string) => strftime(now, format),
      raise_exception: (reason: string) => {
        throw new Error(reason);
      },
    };
    try {
      for (const [name, value] of Object.entries(globals)) environment.set(name, value);
      return String(new Interpreter(environment).run(this.#program).value);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new MassError('invalid_input', `The chat template of ${modelId} refuses this conversation: ${reason}`, {
        cause,
      });
    }
  }
}

/** Python's `range`. */
function range(start: number, stop?: number, step = 1): number[] {
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  const length = step === 0 ? 0 : Math.max(0, Math.ceil((to - from) / step));
  return Array.from({ length }, (_, i) => from + i * step);
}

const months = 'January February March April May June July August September October November December'.split(' ');
const days = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ');

/** The directives of Python's `strftime` that chat templates use, in English and UTC on every machine. */
export function strftime(date: Date, format: string): string {
  const two = (value: number) => String(value).padStart(2, '0');
  const month = months[date.getUTCMonth()] ?? '';
  const day = days[date.getUTCDay()] ?? '';
  const values: Record<string, string> = {
    Y: String(date.getUTCFullYear()),
    m: two(date.getUTCMonth() + 1),
    d: two(date.getUTCDate()),
    B: month,
    b: month.slice(0, 3),
    A: day,
    a: day.slice(0, 3),
    H: two(date.getUTCHours()),
    M: two(date.getUTCMinutes()),
    S: two(date.getUTCSeconds()),
    '%': '%',
  };
  return format.replace(/%([YmdBbAaHMS%])/g, (_match, directive: string) => values[directive] ?? '');
}
