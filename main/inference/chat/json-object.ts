export type JsonObject = Readonly<Record<string, unknown>>;

export const isJsonObject = (value: unknown): value is JsonObject =>
  value !== null && typeof value === 'object' && !Array.isArray(value);

/** The object that `text` spells, or null for anything else. Blank text is the empty object: a call without arguments. */
export function parseObject(text: string): JsonObject | null {
  if (text.trim() === '') return {};
  const value = parseJson(text);
  return isJsonObject(value) ? value : null;
}

/** The value that `text` spells, or undefined. Model output is often not JSON: no error, an expected outcome. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
