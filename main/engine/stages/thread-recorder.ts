import type { OwnerKind } from '../../common/domain/events.ts';
import type { EpisodeObserver, ThreadStart } from '../agents/agent-runtime.ts';
import type { Store } from '../store/store.ts';

export interface ThreadOwner {
  readonly experimentId: string;
  readonly ownerKind: OwnerKind;
  readonly ownerId: string;
}

/** Writes what an agent does to the store, each call durable when it resolves. */
export function threadRecorder(store: Store, owner: ThreadOwner): EpisodeObserver {
  const { experimentId } = owner;
  return {
    threadStarted: async (thread: ThreadStart) => {
      store.appendWith(() => [
        {
          type: 'thread.started',
          threadId: thread.threadId,
          ...owner,
          role: thread.role,
          name: thread.name,
          parentThreadId: thread.parentThreadId,
          parentCallId: thread.parentCallId,
          assignmentHash: thread.assignment === null ? null : store.artifacts.put(thread.assignment),
        },
      ]);
    },
    threadEnded: async (threadId, outcome) => {
      store.append({ type: 'thread.ended', threadId, experimentId, outcome });
    },
    toolRan: async (run) => {
      store.appendWith(() => [
        {
          type: 'tool.ran',
          experimentId,
          threadId: run.threadId,
          callId: run.callId,
          name: run.name,
          argumentsHash: store.artifacts.put(run.arguments),
          resultHash: store.artifacts.put(run.result),
          shownHash: store.artifacts.put(run.shown),
          exitCode: run.exitCode,
          durationMs: run.durationMs,
          failed: run.failed,
        },
      ]);
    },
  };
}
