import type { Logger } from '../../common/base/logger.ts';
import type { Task } from '../../common/domain/task.ts';
import type { AgentRuntime, EpisodeRequest } from '../agents/agent-runtime.ts';
import type { EndpointProvider } from '../endpoints/endpoint.ts';
import type { Vocabulary } from '../endpoints/vocabulary.ts';
import type { ScoreServed } from '../export/served-scores.ts';
import type { DeviceLease } from '../lease/lease.ts';
import type { Sandbox } from '../sandbox/sandbox.ts';
import type { GenerationRow } from '../store/repositories/experiments.ts';
import type { Store } from '../store/store.ts';
import type { TrainerEngine } from '../trainer/trainer-engine.ts';

/** What the stages of one experiment's cycle work with; made by the engine for a run and disposed after it. */
export interface CycleServices {
  readonly store: Store;
  readonly dataFolder: string;
  /** The generation that plays every part in this cycle. */
  readonly generationId: string;
  readonly generation: GenerationRow;
  /** Endpoints of that generation; opening one waits for the device. */
  readonly endpoints: EndpointProvider;
  /** Another generation of the experiment; throws `not_found`. */
  readonly generationOf: (generationId: string) => GenerationRow;
  /** Endpoints of another generation of the experiment. */
  readonly endpointsOf: (generationId: string) => EndpointProvider;
  /** Tokenizer and template of this cycle's generation, without the device; whoever opens it disposes it. */
  readonly openVocabulary: () => Promise<Vocabulary>;
  readonly lease: Pick<DeviceLease<never>, 'exclusive' | 'holder'>;
  /** Made when first asked for: its environment may have to be built. Using it needs the device (`lease.exclusive`). */
  readonly trainer: () => Promise<TrainerEngine>;
  /** Needs the device, like the trainer. */
  readonly scoreServed: ScoreServed;
  /** Folder of llama.cpp's conversion scripts; throws `prerequisite` without git. */
  readonly llamaSources: (signal: AbortSignal) => Promise<string>;
  readonly runtime: AgentRuntime & { readonly promptHashes: Readonly<Record<string, string>> };
  readonly sandbox: Sandbox;
  readonly environment: EpisodeRequest['environment'];
  /** The task as it was when the experiment was created; throws `conflict` when its folder has changed since. */
  readonly loadTask: (taskId: string) => Promise<Task>;
  /** Copies the task's input files into a new workspace; returns them relative to it. */
  readonly placeInputs: (task: Task, workspace: string) => Promise<readonly PlacedFile[]>;
  readonly logger: Logger;
  /** Milliseconds before retry n (0-based) of an attempt that ended by infrastructure. */
  readonly retryDelay: (retry: number) => number;
}

/** The same services with another generation of the experiment in every part. */
export const playedBy = (services: CycleServices, generationId: string): CycleServices => ({
  ...services,
  generationId,
  generation: services.generationOf(generationId),
  endpoints: services.endpointsOf(generationId),
});

export interface PlacedFile {
  readonly path: string;
  readonly sha256: string;
  readonly bytes: number;
}
