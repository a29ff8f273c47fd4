import type { SchedulerMetrics } from '../model/served-model.ts';

/** Counters of the scheduler since load. */
export class MetricsCounter {
  #completed = 0;
  #promptTokens = 0;
  #cachedTokens = 0;
  #evaluatedTokens = 0;
  #generatedTokens = 0;
  readonly #batchSizes = new Map<number, number>();

  batch(sequences: number): void {
    this.#batchSizes.set(sequences, (this.#batchSizes.get(sequences) ?? 0) + 1);
  }

  /** Counted when the prompt is in place, so that a request that is cancelled later still shows the work it cost. */
  prompt(cached: number, evaluated: number): void {
    this.#promptTokens += cached + evaluated;
    this.#cachedTokens += cached;
    this.#evaluatedTokens += evaluated;
  }

  token(): void {
    this.#generatedTokens++;
  }

  complete(): void {
    this.#completed++;
  }

  snapshot(now: Pick<SchedulerMetrics, 'queued' | 'running' | 'checkpointBytes'>): SchedulerMetrics {
    return {
      ...now,
      completed: this.#completed,
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      evaluatedTokens: this.#evaluatedTokens,
      generatedTokens: this.#generatedTokens,
      batchSizes: Object.fromEntries(this.#batchSizes),
    };
  }
}
