/** What is remembered of the values that stand at one place of a metrics file: a key path, or a column. */
export class Series {
  readonly path: string;
  finite = 0;
  /** NaN and infinities */
  invalid = 0;
  /** null, or an empty cell */
  missing = 0;
  /** values that are no numbers at all */
  text = 0;
  first: number | null = null;
  /** all finite values are the same */
  constant = true;
  firstInvalid: string | null = null;
  private last: number | null = null;
  private step: number | null = null;
  private counts = true;

  constructor(path: string) {
    this.path = path;
  }

  addNumber(value: number): void {
    this.finite++;
    if (this.first === null) this.first = value;
    else if (value !== this.first) this.constant = false;
    if (this.last !== null) {
      const step = value - this.last;
      if (step <= 0 || (this.step !== null && Math.abs(step - this.step) > 1e-9 * Math.abs(this.step)))
        this.counts = false;
      this.step ??= step;
    }
    this.last = value;
  }

  addInvalid(written: string): void {
    this.invalid++;
    this.firstInvalid ??= written;
  }

  /** Rises by the same step from row to row: a step or an index, not a measurement. */
  get isCounter(): boolean {
    return this.counts && this.finite > 1;
  }
}

/** Places told apart in one file; further ones share the last. */
const MAX_SERIES = 2_000;

export class SeriesTable {
  private readonly byPath = new Map<string, Series>();

  at(path: string): Series {
    const key = this.byPath.size < MAX_SERIES || this.byPath.has(path) ? path : '(others)';
    const known = this.byPath.get(key);
    if (known) return known;
    const made = new Series(key);
    this.byPath.set(key, made);
    return made;
  }

  all(): Series[] {
    return [...this.byPath.values()];
  }
}

const numberText = /^[+-]?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:[eE][+-]?\d{1,4})?%?$/;
const invalidText = /^[+-]?(?:nan|inf|infinity)$/i;

/** Adds text as it stands in a cell or a JSON string: "0.5" and "5%" are numbers, "nan" and "-inf" are invalid ones. */
export function addText(series: Series, written: string): void {
  const text = written.length > 80 ? '' : written.trim();
  if (invalidText.test(text)) series.addInvalid(text);
  else if (!numberText.test(text)) series.text++;
  else {
    const value = Number(text.replace('%', ''));
    if (Number.isFinite(value)) series.addNumber(value);
    else series.addInvalid(text);
  }
}
