import { z } from 'zod';

export const Domain = z.enum(['finance', 'pharmacy', 'robotics', 'neutral']);
export type Domain = z.infer<typeof Domain>;
export type Split = 'train' | 'test';

/** A file the task asks for. `path` is relative to the workspace. */
export const Deliverable = z.strictObject({
  path: z.string().min(1),
  kind: z.enum(['report', 'manifest', 'metrics', 'code', 'plot', 'data', 'test']),
  description: z.string().default(''),
});
export type Deliverable = z.infer<typeof Deliverable>;

/**
 * `task.json` of a task folder. Beside it lie `prompt.md` (the bare prompt) and `workflow.json` (the initial workflow
 * block). `data` names a script that writes the input files into the folder given as its first argument; it is run
 * once, in the sandbox, and its outputs are copied into every workspace under `data/`.
 */
export const TaskManifest = z.strictObject({
  id: z.string().regex(/^[a-z0-9][a-z0-9-]{0,63}$/),
  number: z.number().int().min(0).describe('unique; used in seed formulas'),
  title: z.string().min(1),
  domain: Domain,
  deliverables: z.array(Deliverable).min(1),
  data: z.strictObject({ script: z.string(), seed: z.number().int(), files: z.array(z.string()).min(1) }).optional(),
});
export type TaskManifest = z.infer<typeof TaskManifest>;

/** Where a task folder is read into: everything an episode, a judge or a proposer needs. */
export interface Task {
  readonly manifest: TaskManifest;
  readonly barePrompt: string;
  readonly initialWorkflow: string;
  /** absolute path of the folder the task was read from */
  readonly folder: string;
  /** sha256 over manifest, prompt, workflow and data script: a changed task is a different task */
  readonly contentHash: string;
}
