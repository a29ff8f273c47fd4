import { isCancelled, MassError, rootCause } from '../../common/base/errors.ts';
import type { Task } from '../../common/domain/task.ts';
import type { StageContext } from '../runner/stage.ts';
import type { TaskRow } from '../store/repositories/tasks.ts';
import type { CycleServices } from './services.ts';

/**
 * Runs `work` for every task at once; the number of units in flight is limited by the context's slots. One task's
 * failure does not stop the others: they go on, and the first failure is thrown when all have ended.
 */
export async function eachTask<T>(
  services: CycleServices,
  context: StageContext,
  options: { readonly include: (row: TaskRow) => boolean; readonly work: (task: Task, row: TaskRow) => Promise<T> },
): Promise<T[]> {
  const rows = services.store.tasks
    .of(context.experimentId)
    .filter((row) => (context.tasks === null || context.tasks.includes(row.taskId)) && options.include(row));
  const results = await Promise.allSettled(
    rows.map(async (row) => options.work(await services.loadTask(row.taskId), row)),
  );
  const failed = results.flatMap((result, i) =>
    result.status === 'rejected' ? [{ error: result.reason as unknown, task: rows[i]?.taskId }] : [],
  );
  const first = failed.find(({ error }) => !isCancelled(error)) ?? failed[0];
  if (!first) return results.map((result) => (result as PromiseFulfilledResult<T>).value);
  if (failed.length === 1 || isCancelled(first.error)) throw first.error;
  const message = first.error instanceof Error ? first.error.message : String(first.error);
  throw new MassError(
    first.error instanceof MassError ? first.error.code : 'internal',
    `${failed.length} tasks failed; the first, ${first.task}: ${message}`,
    {
      details: { tasks: failed.map(({ task }) => task) },
      cause: rootCause(first.error) || first.error,
    },
  );
}

/** Awaits all, then throws the first failure: no unit is left running behind an error. */
export async function settleAll(work: readonly Promise<unknown>[]): Promise<void> {
  const results = await Promise.allSettled(work);
  const failed = results.filter((result) => result.status === 'rejected');
  const first = failed.find((result) => !isCancelled(result.reason)) ?? failed[0];
  if (first) throw first.reason;
}
