import { MassError } from '../../common/base/errors.ts';
import type { EngineHandlers } from '../../node/engine-handlers.ts';

const refuse = async (): Promise<never> => {
  throw new MassError('prerequisite', 'The stub engine does not do this.');
};

/** Handlers that all refuse, except those given. */
export function stubHandlers(given: Partial<EngineHandlers> = {}): EngineHandlers {
  return {
    'engine.info': refuse,
    'engine.stop': refuse,
    'doctor.run': refuse,
    'models.list': refuse,
    'models.add': refuse,
    'models.fetch': refuse,
    'models.plan': refuse,
    'tasks.list': refuse,
    'tasks.show': refuse,
    'experiment.create': refuse,
    'experiment.list': refuse,
    'experiment.status': refuse,
    'experiment.plan': refuse,
    'experiment.prune': refuse,
    'rollout.start': refuse,
    'rollout.show': refuse,
    'compare.start': refuse,
    'compare.show': refuse,
    'evaluation.list': refuse,
    'export.show': refuse,
    'export.choose': refuse,
    'export.merge': refuse,
    'findings.list': refuse,
    'findings.decide': refuse,
    'gates.list': refuse,
    'gates.decide': refuse,
    'windows.list': refuse,
    'windows.episode': refuse,
    'windows.text': refuse,
    'run.start': refuse,
    'run.wait': refuse,
    'events.since': refuse,
    'events.subscribe': refuse,
    ...given,
  };
}
