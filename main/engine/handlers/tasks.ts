import { MassError } from '../../common/base/errors.ts';
import type { Task } from '../../common/domain/task.ts';
import type { EngineHandlers } from '../../node/engine-handlers.ts';
import { readTaskLibrary } from '../tasks/task-library.ts';

const summaryOf = ({ manifest, folder }: Task) => ({
  id: manifest.id,
  number: manifest.number,
  title: manifest.title,
  domain: manifest.domain,
  deliverables: manifest.deliverables,
  folder,
});

export const taskHandlers: Pick<EngineHandlers, 'tasks.list' | 'tasks.show'> = {
  'tasks.list': async ({ library }) => (await readTaskLibrary(library)).map(summaryOf),
  'tasks.show': async ({ library, id }) => {
    const tasks = await readTaskLibrary(library);
    const task = tasks.find((candidate) => candidate.manifest.id === id);
    if (!task)
      throw new MassError(
        'not_found',
        `There is no task "${id}"; there are: ${tasks.map((other) => other.manifest.id).join(', ')}.`,
      );
    return {
      ...summaryOf(task),
      prompt: task.barePrompt,
      workflow: task.initialWorkflow,
      contentHash: task.contentHash,
    };
  },
};
