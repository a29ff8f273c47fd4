import { CommanderError } from 'commander';
import { MassError, toErrorData } from '../common/base/errors.ts';
import { exitCodeOf, exitCodes } from './exit-codes.ts';
import { createProgram } from './program.ts';
import { printable } from './render/format.ts';

const json = process.argv.includes('--json');

function printError(error: unknown): number {
  const data = toErrorData(error);
  if (json) process.stdout.write(`${JSON.stringify({ error: data })}\n`);
  else process.stderr.write(`${printable(data.message)}\n${data.cause ? `Cause: ${printable(data.cause)}\n` : ''}`);
  return exitCodeOf(data.code);
}

const interrupt = new AbortController();
process.on('SIGINT', () => {
  if (interrupt.signal.aborted) process.exit(exitCodes.interrupted); // the second one does not wait
  interrupt.abort();
});
// `mass log | head`: the reader has left, and nobody is there to be told.
process.stdout.on('error', () => process.exit(exitCodes.done));

let exitCode: number = exitCodes.done;
try {
  const ended = (code: number): void => {
    exitCode = code;
  };
  const program = createProgram({ json, interrupted: interrupt.signal, ended });
  await program.parseAsync(process.argv);
} catch (error) {
  if (error instanceof CommanderError) {
    exitCode = error.exitCode === 0 ? exitCodes.done : exitCodes.usage;
    // Commander has written its message for people by itself.
    if (json && exitCode !== exitCodes.done) printError(new MassError('usage', error.message));
  } else {
    const code = printError(error);
    exitCode = interrupt.signal.aborted ? exitCodes.interrupted : code;
  }
}
process.exitCode = exitCode;
