/** Whoever creates a resource disposes it. `dispose` may be called twice and never throws. */
export interface AsyncDisposable {
  dispose(): Promise<void>;
}
