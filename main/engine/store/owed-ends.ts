import type { DomainEvent, EventOf } from '../../common/domain/events.ts';
import type { RunRow, StageRow } from './repositories/experiments.ts';

interface Reads {
  runs(experimentId: string): RunRow[];
  stages(experimentId: string): StageRow[];
}

/** The reads of runs and stages, which also know of ends that a full disk keeps from being written. */
export function withOwedEnds(reads: Reads, owed: () => readonly DomainEvent[]): Reads {
  const owedOf = <T extends DomainEvent['type']>(type: T): EventOf<T>[] =>
    owed().filter((event): event is EventOf<T> => event.type === type);
  return {
    runs: (experimentId) => {
      const ends = owedOf('run.ended');
      return reads.runs(experimentId).map((row) => {
        const end = ends.find((event) => event.runId === row.runId);
        return end === undefined ? row : { ...row, state: end.state, message: end.message, errorJson: end.errorJson };
      });
    },
    stages: (experimentId) => {
      const ends = owedOf('stage.ended');
      return reads.stages(experimentId).map((row) => {
        const end = ends.findLast(
          (event) => event.runId === row.runId && event.stage === row.stage && event.cycle === row.cycle,
        );
        return end === undefined ? row : { ...row, state: end.state, message: end.message };
      });
    },
  };
}
