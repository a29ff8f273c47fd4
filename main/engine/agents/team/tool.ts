import { z } from 'zod';
import type { ToolCall, ToolDefinition } from '../../../common/domain/chat.ts';
import type { PromptSet } from '../../../node/prompts.ts';

/** What came of a call. `unusable`: nothing was done because the call itself was wrong. */
export interface ToolOutcome {
  readonly result: string;
  readonly exitCode: number | null;
  readonly failed: boolean;
  readonly unusable: boolean;
}

export interface Tool {
  readonly definition: ToolDefinition;
  /** Model trouble is an outcome; it rejects only for infrastructure or cancellation. */
  run(call: ToolCall, signal: AbortSignal): Promise<ToolOutcome>;
}

export const succeeded = (result: string): ToolOutcome => ({ result, exitCode: null, failed: false, unusable: false });
export const failed = (result: string): ToolOutcome => ({ result, exitCode: null, failed: true, unusable: false });
export const unusable = (result: string): ToolOutcome => ({ result, exitCode: null, failed: true, unusable: true });

export interface ToolSpec<Arguments> {
  readonly name: string;
  readonly description: string;
  /** What the model is shown; its length bounds steer a constrained decoder. */
  readonly offered: z.ZodType<Arguments>;
  /** What is accepted: an argument that arrived whole is not refused for its length. */
  readonly accepted: z.ZodType<Arguments>;
  readonly notes: PromptSet;
  run(argumentsOf: Arguments, call: ToolCall, signal: AbortSignal): Promise<ToolOutcome>;
}

/** Binds a schema to what it does; a wrong argument becomes a result that says what is wrong. */
export function defineTool<Arguments>(spec: ToolSpec<Arguments>): Tool {
  const { $schema: _dialect, ...parameters } = z.toJSONSchema(spec.offered, { io: 'output' });
  return {
    definition: { name: spec.name, description: spec.description, parameters },
    run: async (call, signal) => {
      const value = parseObject(call.arguments);
      if (value === undefined) return unusable(spec.notes.fill('arguments-not-json', { tool: spec.name }));
      const parsed = spec.accepted.safeParse(value);
      if (parsed.success) return spec.run(parsed.data, call, signal);
      const problems = parsed.error.issues.map(({ path, message }) => `${path.join('.') || spec.name}: ${message}`);
      return unusable(spec.notes.fill('wrong-arguments', { tool: spec.name, problems: problems.join('; ') }));
    },
  };
}

function parseObject(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : undefined;
  } catch {
    // Broken JSON is an expected model mistake: the caller tells the model.
    return undefined;
  }
}

/** Runs one call among the tools of a thread. */
export function runCall(
  tools: readonly Tool[],
  call: ToolCall,
  context: { readonly notes: PromptSet; readonly signal: AbortSignal },
): Promise<ToolOutcome> {
  const tool = tools.find(({ definition }) => definition.name === call.name);
  if (tool) return tool.run(call, context.signal);
  const names = tools.map(({ definition }) => definition.name).join(', ');
  return Promise.resolve(unusable(context.notes.fill('unknown-tool', { name: call.name.slice(0, 100), tools: names })));
}
