export type LogLevel = 'debug' | 'info' | 'warn' | 'error';

/** A line of structured log. Processes decide where lines go; library code only sees this. */
export interface Logger {
  log(level: LogLevel, message: string, fields?: Record<string, unknown>): void;
}

export const silentLogger: Logger = { log: () => undefined };
