import type { ErrorCode } from '../common/base/errors.ts';

export const exitCodes = { done: 0, failed: 1, usage: 2, gate: 3, interrupted: 130 } as const;

export function exitCodeOf(code: ErrorCode): number {
  if (code === 'usage') return exitCodes.usage;
  if (code === 'gate') return exitCodes.gate;
  return exitCodes.failed;
}
