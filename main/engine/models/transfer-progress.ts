/** What a person sees while a model is fetched. Rates are of the last seconds, not of the whole transfer. */
export interface TransferProgress {
  readonly phase: 'download' | 'extract' | 'verify';
  readonly bytes: number;
  /** null while the size is unknown */
  readonly total: number | null;
  readonly bytesPerSecond: number;
  readonly etaSeconds: number | null;
}

/** Reports at most every `everyMs`; the rate is averaged with a time constant of 5 s. `now` is in milliseconds. */
export class ProgressMeter {
  private readonly report: (progress: TransferProgress) => void;
  private readonly now: () => number;
  private readonly everyMs: number;
  private phase: TransferProgress['phase'] = 'download';
  private total: number | null = null;
  private bytes = 0;
  private rate = 0;
  private lastAt: number;
  private lastBytes = 0;

  constructor(report: (progress: TransferProgress) => void, options: { now?: () => number; everyMs?: number } = {}) {
    this.report = report;
    this.now = options.now ?? (() => performance.now());
    this.everyMs = options.everyMs ?? 250;
    this.lastAt = this.now();
  }

  /** `bytes` were there before this transfer began: they count as done but not towards the rate. */
  begin(phase: TransferProgress['phase'], bytes: number, total: number | null): void {
    this.phase = phase;
    this.total = total;
    this.bytes = bytes;
    this.lastBytes = bytes;
    this.lastAt = this.now();
    this.rate = 0;
    this.send();
  }

  add(count: number): void {
    this.at(this.bytes + count);
  }

  at(bytes: number): void {
    this.bytes = bytes;
    const elapsed = this.now() - this.lastAt;
    if (elapsed < this.everyMs) return;
    const current = ((bytes - this.lastBytes) * 1000) / elapsed;
    const weight = 1 - Math.exp(-elapsed / 5000);
    this.rate = this.rate === 0 ? current : this.rate + weight * (current - this.rate);
    this.lastAt += elapsed;
    this.lastBytes = bytes;
    this.send();
  }

  end(): void {
    this.send();
  }

  private send(): void {
    const left = this.total === null ? null : Math.max(0, this.total - this.bytes);
    const etaSeconds = left === 0 ? 0 : left === null || this.rate <= 0 ? null : left / this.rate;
    const { phase, bytes, total, rate } = this;
    this.report({ phase, bytes, total, bytesPerSecond: rate, etaSeconds });
  }
}
