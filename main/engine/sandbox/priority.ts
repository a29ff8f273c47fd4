/**
 * Niceness of model-written commands. llama.cpp's threads wait for each other by spinning, so on a CPU-only machine one
 * busy command at equal priority slows serving ten times and more (docs/performance.md); at 10 the command still gets
 * a large share of a core.
 */
const NICENESS = 10;

/** A program and its arguments, so that it runs below the engine and inference; it keeps its process id. */
export const belowServing = (
  program: string,
  args: readonly string[],
): { readonly program: string; readonly args: string[] } => ({
  program: 'nice',
  args: ['-n', String(NICENESS), program, ...args],
});
