import { findJson, jsonText } from './embedded-json.ts';

export interface WorkflowAgent {
  readonly id: string;
  readonly role: string;
  readonly instruction: string;
  /** what the worker must return, as text; null when the workflow states none */
  readonly contract: string | null;
}

/** One call or hand-off. `what` is what is handed over or asked for. */
export interface WorkflowHop {
  readonly from: string;
  readonly to: string;
  readonly what: string;
  /** the agent was called before, now usually with a narrower scope */
  readonly recall: boolean;
}

/** A derived view of a workflow block. The block's bytes are the truth: nothing is ever written back from this. */
export interface Workflow {
  /** false when the block holds no JSON at all */
  readonly parsed: boolean;
  readonly agents: readonly WorkflowAgent[];
  readonly hops: readonly WorkflowHop[];
  /** what the view has no place for: free text (path "") and JSON of unknown keys */
  readonly unrecognised: readonly { readonly path: string; readonly text: string }[];
  /** what a reader should know, e.g. a hop to an agent that does not exist */
  readonly issues: readonly string[];
}

/** Largest block that is read or accepted, in UTF-8 bytes. */
export const MAX_BLOCK_BYTES = 64 * 1024;

export const ORCHESTRATOR = 'orchestrator';
const MAX_ISSUES = 50;

// Key spellings in the reference's files and in what models write; compared without case, "_", "-" and spaces.
const WRAPPERS = ['workflow', 'teamworkflow', 'team', 'block'];
const AGENTS = ['agents', 'team', 'workers', 'subagents', 'roles'];
const HOPS = ['hops', 'handoffs', 'order', 'sequence', 'flow', 'steps'];
const ID = ['agentid', 'id', 'name'];
const ROLE = ['role', 'title', 'persona'];
const INSTRUCTION = ['instruction', 'instructions', 'task', 'prompt', 'responsibility'];
const CONTRACT = ['contract', 'contracts', 'outputcontract', 'returns'];
const FROM = ['from', 'source', 'sender', 'fromagent'];
const TO = ['to', 'target', 'receiver', 'toagent', 'agent', 'agentid', 'call'];
const WHAT = [
  'what',
  'handoff',
  'passes',
  'artifacts',
  'artifact',
  'message',
  'description',
  'purpose',
  'scope',
  'task',
];

type Fields = Map<string, { readonly key: string; readonly value: unknown }>;

interface Builder {
  readonly agents: WorkflowAgent[];
  readonly hops: WorkflowHop[];
  readonly unrecognised: { path: string; text: string }[];
  readonly issues: string[];
  /** agents that a hop has gone to */
  readonly called: Set<string>;
}

/** Reads a block in any of the known shapes. Never throws; what it cannot place is kept in `unrecognised`. */
export function parseWorkflow(block: string): Workflow {
  const out: Builder = { agents: [], hops: [], unrecognised: [], issues: [], called: new Set() };
  const keepText = (text: string): void => {
    if (text.trim() !== '') out.unrecognised.push({ path: '', text });
  };
  if (block.length > MAX_BLOCK_BYTES) {
    keepText(block);
    return finish(out, false, [`The block is longer than ${MAX_BLOCK_BYTES} bytes and was not read.`]);
  }
  const found = findJson(block, holdsAgents);
  if (!found) {
    keepText(block);
    return finish(out, false, ['The block holds no JSON.']);
  }
  keepText(found.before);
  readTeam(out, found.value);
  keepText(found.after);
  return finish(out, true, []);
}

function finish(out: Builder, parsed: boolean, issues: readonly string[]): Workflow {
  const known = new Set(out.agents.map((agent) => agent.id));
  const unknown = (id: string): boolean => !known.has(id) && id.toLowerCase() !== ORCHESTRATOR;
  const strays = out.hops.flatMap((hop, i) =>
    [hop.from, hop.to].filter(unknown).map((id) => `hops[${i}] names "${id}", which is no agent.`),
  );
  return {
    parsed,
    agents: out.agents,
    hops: out.hops,
    unrecognised: out.unrecognised,
    issues: [...issues, ...out.issues, ...strays].slice(0, MAX_ISSUES),
  };
}

const isTeam = (value: unknown): value is object => Array.isArray(value) || isObject(value);

/** The team inside {"workflow": {...}} and the like, or undefined when the value itself is the team. */
function wrapped(fields: Fields): { readonly name: string; readonly value: unknown } | undefined {
  if (fields.has('agents')) return undefined;
  const name = WRAPPERS.find((wrapper) => {
    const inner = fields.get(wrapper)?.value;
    return isObject(inner) && fieldsOf(inner).has('agents');
  });
  return name === undefined ? undefined : { name, value: fields.get(name)?.value };
}

/** Whether a value can be read as a team: a list with an object in it, or an object with a member that names agents. */
function holdsAgents(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(isObject);
  if (!isObject(value)) return false;
  const fields = fieldsOf(value);
  return wrapped(fields) !== undefined || AGENTS.some((name) => isTeam(fields.get(name)?.value));
}

function readTeam(out: Builder, value: unknown): void {
  if (Array.isArray(value)) {
    readAgents(out, value, 'agents');
    return;
  }
  if (!isObject(value)) {
    out.unrecognised.push({ path: '', text: jsonText(value) });
    return;
  }
  const fields = fieldsOf(value);
  const inner = wrapped(fields);
  if (inner) {
    fields.delete(inner.name);
    readTeam(out, inner.value);
  } else {
    const agents = take(fields, AGENTS, isTeam);
    if (agents) readAgents(out, agents.value, agents.key);
  }
  const hops = take(fields, HOPS, Array.isArray);
  if (hops && Array.isArray(hops.value)) readHops(out, hops.value, hops.key);
  keepRest(out, fields, '');
}

/** A list of agents, or an object from id to agent. A list may also carry an element that holds the hops. */
function readAgents(out: Builder, value: unknown, path: string): void {
  if (Array.isArray(value)) {
    value.forEach((entry, i) => {
      readAgent(out, { entry, path: `${path}[${i}]`, id: null, position: i });
    });
  } else if (isObject(value)) {
    Object.entries(value).forEach(([id, entry], i) => {
      readAgent(out, { entry, path: `${path}.${id}`, id, position: i });
    });
  }
}

interface AgentEntry {
  readonly entry: unknown;
  readonly path: string;
  readonly id: string | null;
  readonly position: number;
}

function readAgent(out: Builder, { entry, path, id: givenId, position }: AgentEntry): void {
  if (givenId !== null && typeof entry === 'string') {
    out.issues.push(`${path} has no role.`);
    out.agents.push({ id: givenId, role: '', instruction: entry, contract: null });
    return;
  }
  if (!isObject(entry)) {
    out.unrecognised.push({ path, text: jsonText(entry) });
    out.issues.push(`${path} is not an object with an id, a role and an instruction.`);
    return;
  }
  const fields = fieldsOf(entry);
  if (givenId === null && readHopsElement(out, fields, path)) return;
  const id = givenId ?? textOf(take(fields, ID)?.value).trim();
  const role = textOf(take(fields, ROLE)?.value);
  const instruction = textOf(take(fields, INSTRUCTION)?.value);
  const contract = contractText(take(fields, CONTRACT)?.value);
  if (id === '') out.issues.push(`${path} has no id; it is shown as "agent-${position + 1}".`);
  if (role.trim() === '') out.issues.push(`${path} has no role.`);
  if (instruction.trim() === '') out.issues.push(`${path} has no instruction.`);
  out.agents.push({ id: id === '' ? `agent-${position + 1}` : id, role, instruction, contract });
  keepRest(out, fields, `${path}.`);
}

/** True when a list element is the hops, or one hop, rather than an agent. */
function readHopsElement(out: Builder, fields: Fields, path: string): boolean {
  if ([...ID, ...ROLE, ...INSTRUCTION].some((name) => fields.has(name))) return false;
  if (fields.has('from') && fields.has('to')) {
    readHop(out, fields, path);
    return true;
  }
  const hops = take(fields, HOPS, Array.isArray);
  if (!hops || !Array.isArray(hops.value)) return false;
  readHops(out, hops.value, `${path}.${hops.key}`);
  keepRest(out, fields, `${path}.`);
  return true;
}

function readHops(out: Builder, entries: readonly unknown[], path: string): void {
  entries.forEach((entry, i) => {
    const where = `${path}[${i}]`;
    if (typeof entry === 'string') readRoute(out, entry);
    else if (Array.isArray(entry) && entry.length >= 2 && entry.every((part) => typeof part === 'string'))
      addHop(out, { from: entry[0] ?? '', to: entry[1] ?? '', what: entry.slice(2).join(' ') });
    else if (isObject(entry)) readHop(out, fieldsOf(entry), where);
    else {
      out.unrecognised.push({ path: where, text: jsonText(entry) });
      out.issues.push(`${where} is not a hop.`);
    }
  });
}

function readHop(out: Builder, fields: Fields, path: string): void {
  const from = textOf(take(fields, FROM)?.value).trim();
  const target = take(fields, TO)?.value;
  const to = (Array.isArray(target) ? target.map(textOf) : [textOf(target)]).map((id) => id.trim());
  const said = textOf(take(fields, WHAT)?.value);
  const { recall, scope } = recallOf(take(fields, ['recall', 'isrecall'])?.value);
  const what = [said, scope].filter((part) => part !== '').join('; ');
  const targets = to.filter((id) => id !== '');
  if (targets.length === 0) out.issues.push(`${path} does not say which agent it goes to.`);
  for (const id of targets) addHop(out, { from: from || previousStop(out), to: id, what, recall });
  if (targets.length === 0 && what !== '') out.unrecognised.push({ path, text: what });
  keepRest(out, fields, `${path}.`);
}

/** "a -> b -> c: what", "a -> b" or a lone "b", which is called after the stop before it. */
function readRoute(out: Builder, text: string): void {
  const colon = text.indexOf(':');
  const route = colon < 0 ? text : text.slice(0, colon);
  const what = colon < 0 ? '' : text.slice(colon + 1).trim();
  const stops = route
    .split(/->|=>|\u2192/)
    .map((stop) => stop.trim())
    .filter((stop) => stop !== '');
  let from = stops.length > 1 ? (stops.shift() ?? '') : previousStop(out);
  for (const to of stops) {
    addHop(out, { from, to, what });
    from = to;
  }
}

const previousStop = (out: Builder): string => out.hops[out.hops.length - 1]?.to ?? ORCHESTRATOR;

/** Without a flag a hop is a recall when it says so or when its target has been called before. */
function addHop(out: Builder, hop: Omit<WorkflowHop, 'recall'> & { recall?: boolean | undefined }): void {
  const { from, to, what } = hop;
  const again = to.toLowerCase() !== ORCHESTRATOR && out.called.has(to);
  out.called.add(to);
  out.hops.push({
    from: from.trim(),
    to: to.trim(),
    what,
    recall: hop.recall ?? (again || /^\s*recall\b/i.test(what)),
  });
}

function recallOf(value: unknown): { recall: boolean | undefined; scope: string } {
  if (typeof value === 'boolean') return { recall: value, scope: '' };
  const text = textOf(value).trim();
  if (text === '') return { recall: undefined, scope: '' };
  if (/^(true|yes|1)$/i.test(text)) return { recall: true, scope: '' };
  if (/^(false|no|0)$/i.test(text)) return { recall: false, scope: '' };
  return { recall: true, scope: text };
}

/** A contract as text: a string as it is, an object {outputs, evidence, checks, ...} as one "key: value" line each. */
function contractText(value: unknown): string | null {
  const text = isObject(value)
    ? Object.entries(value)
        .map(([key, part]) => `${key}: ${textOf(part)}`)
        .join('\n')
    : textOf(value);
  return text.trim() === '' ? null : text;
}

/** Strings as they are, lists joined, nothing as "", everything else as JSON. */
function textOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map((v) => (typeof v === 'string' ? v : jsonText(v))).join('; ');
  return jsonText(value);
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Members by simplified key. Of two keys that simplify alike the first counts; the other is kept under its own name. */
function fieldsOf(value: Record<string, unknown>): Fields {
  const fields: Fields = new Map();
  for (const [key, member] of Object.entries(value)) {
    const plain = key.toLowerCase().replace(/[\s_-]/g, '');
    fields.set(fields.has(plain) ? `\0${key}` : plain, { key, value: member });
  }
  return fields;
}

/** Removes and returns the first acceptable member among the names; members not taken end up as unrecognised. */
function take(fields: Fields, names: readonly string[], accept: (value: unknown) => boolean = (v) => textOf(v) !== '') {
  for (const name of names) {
    const field = fields.get(name);
    if (!field || !accept(field.value)) continue;
    fields.delete(name);
    return field;
  }
  return undefined;
}

function keepRest(out: Builder, fields: Fields, path: string): void {
  for (const { key, value } of fields.values())
    if (value !== null && value !== '') out.unrecognised.push({ path: `${path}${key}`, text: jsonText(value) });
}
