import type { Domain, TaskManifest } from '../../../common/domain/task.ts';

/**
 * Whose eyes a judgment is made with. The manifest's domain decides; a task that states none is placed by its number
 * as the reference does: finance 1-99, pharmacy 200-299, robotics 300-399.
 */
export function personaOf(task: Pick<TaskManifest, 'number' | 'domain'>): Domain {
  if (task.domain !== 'neutral') return task.domain;
  const { number } = task;
  if (number >= 1 && number <= 99) return 'finance';
  if (number >= 200 && number <= 299) return 'pharmacy';
  if (number >= 300 && number <= 399) return 'robotics';
  return 'neutral';
}
