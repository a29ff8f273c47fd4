import type { MethodName, ParamsOf, Progress, ResultOf } from '../common/protocol/engine.ts';

/** What an engine implements. `signal` aborts when the client cancels or goes away. */
export type EngineHandlers = {
  readonly [M in MethodName]: (params: ParamsOf<M>, context: HandlerContext) => Promise<ResultOf<M>>;
};
export interface HandlerContext {
  readonly signal: AbortSignal;
  /** progress of a long method (a download, an environment build), for the asking client only */
  readonly progress: (progress: Progress) => void;
}
