import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { MassError } from '../common/base/errors.ts';
import { sha256 } from './hashing.ts';
import { resourcePath } from './project-root.ts';

export type Slots = Readonly<Record<string, string | number>>;

/** A versioned text a model reads. */
export interface Prompt {
  /** "orchestrator.v1": for records, beside `hash`. */
  readonly id: string;
  /** sha256 of the file's bytes: two runs with the same hash read the same words. */
  readonly hash: string;
  readonly text: string;
  readonly slots: readonly string[];
  /**
   * The text with every `{{slot}}` replaced. Values are put in as they are: a `{{name}}` inside a value stays text.
   * @throws MassError internal when a slot is missing or unknown
   */
  fill(values?: Slots): string;
}

/** Short named texts of one actor in one file: tool descriptions, notes in tool results. */
export interface PromptSet {
  readonly id: string;
  readonly hash: string;
  readonly names: readonly string[];
  /** @throws MassError internal for an unknown name, and as `Prompt.fill` */
  fill(name: string, values?: Slots): string;
}

const SLOT = /\{\{([a-zA-Z][a-zA-Z0-9]*)\}\}/g;
const NAME = /^[a-z][a-z0-9-]*$/;
const SetFile = z.record(z.string(), z.string().min(1));

function fillTemplate(id: string, text: string, values: Slots): string {
  const slots = slotsOf(text);
  const missing = slots.filter((slot) => !Object.hasOwn(values, slot));
  const unknown = Object.keys(values).filter((name) => !slots.includes(name));
  if (missing.length > 0 || unknown.length > 0)
    throw new MassError('internal', `Prompt ${id} has slots [${slots}] but was given [${Object.keys(values)}].`, {
      details: { missing, unknown },
    });
  return text.replace(SLOT, (_match, slot: string) => String(values[slot]));
}

const slotsOf = (text: string): string[] => [...new Set([...text.matchAll(SLOT)].map((match) => match[1] ?? ''))];

function readPrompt(actor: string, version: number, extension: 'md' | 'json', folder: string): string {
  if (!NAME.test(actor)) throw new MassError('internal', `"${actor}" is not a prompt name.`);
  const path = join(folder, `${actor}.v${version}.${extension}`);
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new MassError('prerequisite', `Cannot read the prompt file ${path}; reinstall the program.`, { cause });
  }
}

/**
 * Reads `resources/prompts/<actor>.v<version>.md`. White space at both ends is not part of the prompt.
 * @throws MassError prerequisite when the file cannot be read
 */
export function loadPrompt(actor: string, version: number, folder = resourcePath('prompts')): Prompt {
  const file = readPrompt(actor, version, 'md', folder);
  const id = `${actor}.v${version}`;
  const text = file.trim();
  return { id, hash: sha256(file), text, slots: slotsOf(text), fill: (values = {}) => fillTemplate(id, text, values) };
}

/**
 * Reads `resources/prompts/<actor>.v<version>.json`: an object of named templates.
 * @throws MassError prerequisite when the file cannot be read or is not such an object
 */
export function loadPromptSet(actor: string, version: number, folder = resourcePath('prompts')): PromptSet {
  const file = readPrompt(actor, version, 'json', folder);
  const id = `${actor}.v${version}`;
  const texts = parseSet(id, file);
  return {
    id,
    hash: sha256(file),
    names: [...texts.keys()],
    fill: (name, values = {}) => {
      const text = texts.get(name);
      if (text === undefined) throw new MassError('internal', `Prompt set ${id} has no text named "${name}".`);
      return fillTemplate(`${id}#${name}`, text, values);
    },
  };
}

function parseSet(id: string, file: string): Map<string, string> {
  try {
    return new Map(Object.entries(SetFile.parse(JSON.parse(file))));
  } catch (cause) {
    throw new MassError('prerequisite', `The prompt file of ${id} is damaged; reinstall the program.`, { cause });
  }
}
