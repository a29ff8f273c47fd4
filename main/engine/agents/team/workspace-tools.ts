import type { PromptSet } from '../../../node/prompts.ts';
import type { CommandResult } from '../../sandbox/sandbox.ts';
import type { EpisodeRequest } from '../agent-runtime.ts';
import { isModelMistake } from './failures.ts';
import { defineTool, failed, succeeded, type Tool, type ToolOutcome } from './tool.ts';
import { argumentSchemas, type TextBounds, UNBOUNDED } from './tool-arguments.ts';

/** File access inside one workspace. A refusal (no such file, path outside) is a MassError that tells the model why. */
export interface WorkspaceFiles {
  list(path: string): Promise<string>;
  read(path: string, range: { offset?: number; limit?: number }): Promise<string>;
  write(path: string, content: string): Promise<void>;
  edit(path: string, change: { find: string; replace: string }): Promise<void>;
}

export interface WorkspaceToolOptions {
  readonly request: EpisodeRequest;
  readonly files: WorkspaceFiles;
  readonly bounds: TextBounds;
  readonly descriptions: PromptSet;
  readonly notes: PromptSet;
  /** Seconds left of the episode: no command outlives it. */
  readonly secondsLeft: () => number;
}

/** Bytes of each output stream kept for the record; a command may print more, which is counted. */
const KEPT_OUTPUT_BYTES = 1 << 20;

/** The tools orchestrator and workers share. */
export function workspaceTools(options: WorkspaceToolOptions): Tool[] {
  const { files, bounds, descriptions, notes } = options;
  const offered = argumentSchemas(bounds);
  const accepted = argumentSchemas(UNBOUNDED);
  const tool = (name: string) => ({ name, description: descriptions.fill(name), notes });
  return [
    defineTool({
      ...tool('list_files'),
      offered: offered.listFiles,
      accepted: accepted.listFiles,
      run: ({ path }) => asOutcome(async () => (await files.list(path || '.')) || notes.fill('empty-folder')),
    }),
    defineTool({
      ...tool('read_file'),
      offered: offered.readFile,
      accepted: accepted.readFile,
      run: ({ path, offset, limit }) =>
        asOutcome(() =>
          files.read(path, { ...(offset === undefined ? {} : { offset }), ...(limit === undefined ? {} : { limit }) }),
        ),
    }),
    defineTool({
      ...tool('write_file'),
      offered: offered.writeFile,
      accepted: accepted.writeFile,
      run: ({ path, content }) =>
        asOutcome(async () => {
          await files.write(path, content);
          return notes.fill('written', { path });
        }),
    }),
    defineTool({
      ...tool('edit_file'),
      offered: offered.editFile,
      accepted: accepted.editFile,
      run: ({ path, find, replace }) =>
        asOutcome(async () => {
          await files.edit(path, { find, replace });
          return notes.fill('edited', { path });
        }),
    }),
    defineTool({
      ...tool('run_command'),
      offered: offered.runCommand,
      accepted: accepted.runCommand,
      run: async ({ command }, _call, signal) => commandOutcome(await runCommand(command, options, signal), notes),
    }),
  ];
}

function runCommand(command: string, options: WorkspaceToolOptions, signal: AbortSignal): Promise<CommandResult> {
  const { request, secondsLeft } = options;
  return request.sandbox.run({
    command,
    workspace: request.workspace,
    limits: request.sandboxLimits,
    wallSeconds: Math.max(1, Math.min(request.executor.commandSeconds, secondsLeft())),
    outputBytes: KEPT_OUTPUT_BYTES,
    readOnlyMounts: request.environment.mounts,
    env: request.environment.env,
    signal,
  });
}

async function asOutcome(work: () => Promise<string>): Promise<ToolOutcome> {
  try {
    return succeeded(await work());
  } catch (error) {
    if (isModelMistake(error)) return failed(error.message);
    throw error;
  }
}

function commandOutcome(ended: CommandResult, notes: PromptSet): ToolOutcome {
  const parts = [headline(ended, notes)];
  for (const stream of ['stdout', 'stderr'] as const) {
    const text = ended[stream];
    if (text !== '') parts.push(stream === 'stderr' ? `[stderr]\n${text}` : text);
    const dropped = ended[`${stream}Bytes`] - Buffer.byteLength(text);
    if (ended[`${stream}Bytes`] > KEPT_OUTPUT_BYTES && dropped > 0)
      parts.push(notes.fill('stream-cut', { stream, bytes: dropped }));
  }
  if (ended.stdoutBytes + ended.stderrBytes === 0) parts.push(notes.fill('no-output'));
  const result = parts.map((part) => part.replace(/\n$/, '')).join('\n');
  return { result, exitCode: ended.exitCode, failed: ended.exitCode !== 0 || ended.limit !== null, unusable: false };
}

function headline({ exitCode, signal, limit }: CommandResult, notes: PromptSet): string {
  if (limit !== null) return notes.fill('command-limit', { limit });
  if (exitCode === null) return notes.fill('command-signal', { signal: signal ?? 'unknown' });
  return notes.fill('command-exit', { code: exitCode });
}
