/** Text for people: sizes, durations, tables. */

export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export function formatSeconds(seconds: number): string {
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** 1234567 -> "1,234,567", the same in every locale. */
export const formatCount = (value: number): string =>
  Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ',');

/** Local time of day of a moment in milliseconds since 1970. */
export function formatTime(at: number): string {
  const date = new Date(at);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Columns padded to their widest cell, two spaces apart, those of `right` to the right; no trailing spaces. */
export function table(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  { right = [] }: { readonly right?: readonly number[] } = {},
): string {
  const all = [head, ...rows];
  const widths = head.map((_, column) => Math.max(...all.map((row) => (row[column] ?? '').length)));
  return all
    .map((row) =>
      row
        .map((cell, column) => cell[right.includes(column) ? 'padStart' : 'padEnd'](widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

const controlCharacters = /(?![\n\t])\p{Cc}/gu;

/** Model and task text may hold terminal control sequences; they must not act on the reader's terminal. */
export const printable = (text: string): string => text.replace(controlCharacters, '\ufffd');
