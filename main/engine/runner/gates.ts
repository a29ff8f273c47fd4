import { MassError } from '../../common/base/errors.ts';
import type { ExperimentConfig } from '../../common/domain/config.ts';
import type { DomainEvent } from '../../common/domain/events.ts';
import type { GateKind, GateState } from '../../common/domain/integrity-events.ts';
import { newId } from '../../node/ids.ts';

export interface GateQuestion {
  /** one sentence: what waits, and what to look at */
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
  /** What an approval covers. A later question is answered by it when it asks about nothing else; [] is always covered. */
  readonly about?: readonly string[];
}

/** Resolves when a person approved, or when the configuration has no such gate; else it throws `gate` and the run ends. */
export type AskGate = (kind: GateKind, question: GateQuestion) => Promise<void>;

/** What is known of an earlier gate. */
export interface KnownGate {
  readonly gateId: string;
  readonly kind: GateKind;
  readonly cycle: number;
  readonly state: GateState;
  readonly aboutJson: string;
  readonly note: string;
}

export interface GateParts {
  readonly append: (...events: DomainEvent[]) => void;
  /** all gates of the experiment, oldest first */
  readonly gates: (experimentId: string) => readonly KnownGate[];
}

export interface GateKey {
  readonly experimentId: string;
  readonly name: string;
  readonly cycle: number;
  readonly runId: string;
  readonly config: ExperimentConfig;
}

const switchOf: Readonly<Record<GateKind, keyof ExperimentConfig['gates'] | null>> = {
  'before-train': 'beforeTrain',
  'before-register': 'beforeRegister',
  'on-findings': 'onFindings',
  'short-pool': null, // nothing can go on without the runs, so it cannot be switched off
};

/** Gates of one cycle of a run. Asking again, in this run or a later one, meets the decision that was made. */
export function createGate(parts: GateParts, key: GateKey): AskGate {
  const { experimentId, name, cycle, runId, config } = key;
  return async (kind, { message, details = {}, about = [] }) => {
    const option = switchOf[kind];
    if (option !== null && !config.gates[option]) return;
    const known = parts.gates(experimentId).filter((gate) => gate.kind === kind && gate.cycle === cycle);
    const decided = known.findLast((gate) => gate.state !== 'open' && gate.state !== 'lifted' && covers(gate, about));
    if (decided?.state === 'approved') return;
    if (decided) throw rejected(kind, name, decided.note);
    const open = known.filter((gate) => gate.state === 'open');
    if (!open.some((gate) => isAbout(gate, about)))
      parts.append(...open.map((gate) => liftedEvent(experimentId, gate.gateId)), {
        type: 'gate.opened',
        gateId: newId('ga'),
        experimentId,
        cycle,
        kind,
        runId,
        about: [...about],
        message,
        detailsJson: JSON.stringify(details),
      });
    const how = kind === 'short-pool' ? '' : ` Go on with: mass approve ${name} ${kind}`;
    throw new MassError('gate', `${message}${how}`, { details: { kind, ...details } });
  };
}

/** Ends an open gate that nothing stands behind any more. */
export const liftedEvent = (experimentId: string, gateId: string): DomainEvent => ({
  type: 'gate.decided',
  gateId,
  experimentId,
  decision: 'lifted',
  note: '',
  by: 'engine',
});

const aboutOf = (gate: KnownGate): readonly string[] => JSON.parse(gate.aboutJson) as string[]; // written by `createGate`
const covers = (gate: KnownGate, about: readonly string[]): boolean => {
  const covered = new Set(aboutOf(gate));
  return about.every((what) => covered.has(what));
};
const isAbout = (gate: KnownGate, about: readonly string[]): boolean =>
  aboutOf(gate).length === about.length && covers(gate, about);

const rejected = (kind: GateKind, name: string, note: string): MassError =>
  new MassError(
    'gate',
    `A person rejected the gate ${kind}${note === '' ? '' : ` ("${note}")`}; to go on after all: mass approve ${name} ${kind}`,
    { details: { kind } },
  );
