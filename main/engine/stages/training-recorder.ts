import { basename, join } from 'node:path';
import { isCancelled, MassError, toErrorData } from '../../common/base/errors.ts';
import type { DomainEvent } from '../../common/domain/events.ts';
import type { Capabilities, TrainingPlan } from '../../common/protocol/trainer.ts';
import type { StageContext } from '../runner/stage.ts';
import type { TrainingRow } from '../store/repositories/trainings.ts';
import type { TrainOptions } from '../trainer/trainer-engine.ts';
import type { CycleServices } from './services.ts';
import type { Training } from './train-order.ts';

/** What was found out before a training begins. */
export interface Planned {
  readonly plan: TrainingPlan;
  readonly capabilities: Capabilities;
}

type TrainEvent = Parameters<TrainOptions['onEvent']>[0];

/** Turns what the trainer says into events of the log, and into words for who watches. */
export class TrainingRecorder {
  readonly #services: CycleServices;
  readonly #context: StageContext;
  readonly #training: Training;
  readonly #planned: Planned;
  #running = false;
  #step = 0;
  /** where and when this start began to train */
  #from = { step: 0, at: 0 };

  constructor(
    services: CycleServices,
    context: StageContext,
    { training, plan, capabilities }: Planned & { readonly training: Training },
  ) {
    this.#services = services;
    this.#context = context;
    this.#training = training;
    this.#planned = { plan, capabilities };
  }

  take(event: TrainEvent): void {
    const { store } = this.#services;
    const key = this.#key();
    if (event.kind === 'started') this.#start(event.fromStep);
    else if (event.kind === 'step') {
      const { kind: _, ...step } = event;
      store.append({ type: 'training.stepped', ...key, ...step });
      this.#step = event.step;
      this.#context.doing(this.#doing(event.loss));
    } else if (event.kind === 'validation') {
      const { step, loss, labelledTokens } = event;
      store.append({ type: 'training.validated', ...key, step, loss, labelledTokens });
    } else {
      const { step, bytes, adapterSha256 } = event;
      const folder = join(this.#training.folder, basename(event.folder));
      store.append({ type: 'training.checkpointed', ...key, step, folder, bytes, adapterSha256 });
    }
  }

  end(state: 'finished' | 'stopped' | 'diverged' | 'failed', step: number, message: string): void {
    this.#running = false;
    this.#services.store.append({ type: 'training.ended', ...this.#key(), state, step, message });
  }

  /** For a training that did not come to an end of its own. */
  fail(error: unknown): void {
    if (!this.#running) return;
    this.end(isCancelled(error) ? 'stopped' : 'failed', this.#step, toErrorData(error).message);
  }

  row(): TrainingRow {
    const row = this.#services.store.trainings.byId(this.#training.trainingId);
    if (!row) throw new MassError('internal', 'A training ended that never began.');
    return row;
  }

  savedSteps(): number[] {
    return this.#services.store.trainings.checkpoints(this.#training.trainingId).map(({ step }) => step);
  }

  #key() {
    return { trainingId: this.#training.trainingId, experimentId: this.#context.experimentId };
  }

  #start(fromStep: number): void {
    const { store, generationId } = this.#services;
    const { windowSetId, folder, order } = this.#training;
    const newest = this.savedSteps().at(-1) ?? 0;
    if (newest > fromStep) store.append(this.#lostNotice(newest, fromStep));
    store.append({
      type: 'training.started',
      ...this.#key(),
      cycle: this.#context.cycle,
      parentGenerationId: generationId,
      windowSetId,
      folder,
      orderHash: store.artifacts.putJson({ order, ...this.#planned }),
      fromStep,
      steps: order.recipe.steps,
    });
    this.#running = true;
    this.#step = fromStep;
    this.#from = { step: fromStep, at: Date.now() };
    const where = fromStep === 0 ? 'validating before the first step' : `going on from step ${fromStep}`;
    this.#context.doing(`train: ${where} of ${order.recipe.steps}`);
  }

  /** Hours that were trained and are trained again must not pass unseen. */
  #lostNotice(newest: number, fromStep: number): DomainEvent {
    const { cycle, experimentId } = this.#context;
    return {
      type: 'notice',
      experimentId,
      level: 'warning',
      code: 'checkpoint-lost',
      message:
        `Training L${cycle} goes on from step ${fromStep} although step ${newest} was saved: ` +
        'its checkpoint is gone, damaged, or of a model that lay elsewhere; the log of the engine says which.',
    };
  }

  #doing(loss: number): string {
    const { steps } = this.#training.order.recipe;
    const each = (Date.now() - this.#from.at) / 1000 / (this.#step - this.#from.step);
    const left = duration(each * (steps - this.#step));
    return `train: step ${this.#step} of ${steps}, loss ${loss.toFixed(4)}, about ${left} left`;
  }
}

/** "40 s", "12 min", "3.5 h" */
export function duration(seconds: number): string {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
