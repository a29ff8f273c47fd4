import { Argument, Command, Option } from 'commander';
import { MassError } from '../common/base/errors.ts';
import { type CommandContext, type CommandResult, connectTo, dataFolderOf } from './command-context.ts';
import { demo } from './commands/demo.ts';
import { compare, evaluations, rollout } from './commands/evaluate.ts';
import { type ExportGiven, exportGeneration } from './commands/export.ts';
import { decideGate, findings, gates } from './commands/integrity.ts';
import * as library from './commands/library.ts';
import { cycleStages, run } from './commands/run.ts';
import { log, status, stop } from './commands/watch.ts';
import { inspectWindows } from './commands/windows.ts';
import { exitCodes } from './exit-codes.ts';
import {
  cycleOptions,
  cyclesOf,
  generationNumber,
  inspectExamples,
  inspectOption,
  positiveInteger,
  taskList,
} from './options.ts';
import { createReporter, silentReporter } from './render/reporter.ts';

export interface ProgramOptions {
  readonly json: boolean;
  readonly interrupted: AbortSignal;
  readonly ended: (exitCode: number) => void;
}

type Perform = (act: (context: CommandContext) => Promise<CommandResult | null>) => Promise<void>;

/** Every command of `mass`. Global options are understood before and after the command's name. */
export function createProgram(options: ProgramOptions): Command {
  const program = new Command('mass')
    .description('A laboratory for MASS, multi-agent self-supervision on one local model.')
    .option('--data <dir>', 'data folder (default: MASS_DATA, else mass-lab in the XDG data folder)')
    .option('--json', 'print the result, and errors, as JSON on standard output')
    .exitOverride()
    .configureHelp({ showGlobalOptions: true })
    .showHelpAfterError('(--help shows how)');
  if (options.json) program.configureOutput({ writeErr: () => undefined });
  const perform: Perform = async (act) => {
    const reporter = options.json ? silentReporter : createReporter(process.stderr);
    const print = (line: string): void => void process.stdout.write(`${line}\n`);
    const dataFolder = dataFolderOf(program.opts<{ data?: string }>().data);
    const { json, interrupted } = options;
    const connect = ({ start }: { start: boolean }) => connectTo(dataFolder, start);
    try {
      const result = await act({ dataFolder, json, interrupted, reporter, connect, print });
      reporter.end();
      if (result !== null) print(json ? JSON.stringify(result.value) : result.text);
      options.ended(result?.exitCode ?? exitCodes.done);
    } finally {
      reporter.end();
    }
  };
  addLibrary(program, perform);
  addExperiments(program, perform);
  addRuns(program, perform);
  addEvaluation(program, perform);
  addDecisions(program, perform);
  addWatching(program, perform);
  return program;
}

function command(parent: Command, usage: string, description: string, example: string): Command {
  return parent.command(usage).description(description).addHelpText('after', `\nExample:\n  ${example}`);
}

function addLibrary(program: Command, perform: Perform): void {
  command(program, 'doctor', 'what works on this machine, what is missing, how to mend it', 'mass doctor --repair')
    .option('--repair', 'mend what can be mended')
    .action((given: { repair?: boolean }) => perform((context) => library.doctor(context, given.repair ?? false)));

  const models = program.command('models').description('the models of this data folder');
  command(models, 'list', 'known models and their state', 'mass models list').action(() => perform(library.modelsList));
  command(models, 'add <path>', 'register a GGUF file', 'mass models add ./model.gguf --id mine')
    .option('--id <id>', 'name it')
    .action((path: string, given: { id?: string }) => perform((context) => library.modelsAdd(context, path, given.id)));
  command(models, 'fetch <id>', 'download a known model', 'mass models fetch smollm2-135m-q4-1').action((id: string) =>
    perform((context) => library.modelsFetch(context, id)),
  );
  command(models, 'plan <id>', 'the memory a model takes', 'mass models plan smollm2-135m-q4-1 --sequences 4')
    .option('--context-size <tokens>', 'per sequence', positiveInteger)
    .option('--sequences <n>', 'served at once', positiveInteger)
    .action((id: string, given: { contextSize?: number; sequences?: number }) =>
      perform((context) => library.modelsPlan(context, { id, ...given })),
    );

  const tasks = program.command('tasks').description('the task library');
  command(tasks, 'list', 'every task', 'mass tasks list').action(() => perform(library.tasksList));
  command(tasks, 'show <id>', 'prompt and workflow of a task', 'mass tasks show stopping-distance').action(
    (id: string) => perform((context) => library.tasksShow(context, id)),
  );
}

function addExperiments(program: Command, perform: Perform): void {
  command(program, 'new <name>', 'create an experiment; its configuration is frozen', 'mass new first --config my.json')
    .requiredOption('--config <file>', 'configuration, JSON')
    .action((name: string, given: { config: string }) =>
      perform((context) => library.create(context, name, given.config)),
    );
  command(program, 'plan <name>', 'what will run, with estimates', 'mass plan first --cycles 2')
    .addOption(cycleOptions.cycles())
    .addOption(cycleOptions.cycle())
    .action((name: string, given: { cycles?: number; cycle?: number }) =>
      perform((context) => library.plan(context, name, cyclesOf(given))),
    );
  command(program, 'prune <name>', 'remove workspaces no stage needs', 'mass prune first --dry-run')
    .option('--dry-run', 'only count them')
    .action((name: string, given: { dryRun?: boolean }) =>
      perform((context) => library.prune(context, name, given.dryRun ?? false)),
    );
}

function addRuns(program: Command, perform: Perform): void {
  const tasksOption = () => new Option('--tasks <ids>', 'only these tasks, comma-separated').argParser(taskList);
  command(program, 'run <name>', 'run the cycle; what is done is skipped', 'mass run first --until rank')
    .addOption(new Option('--until <stage>', 'last stage to run').choices([...cycleStages]))
    .addOption(tasksOption())
    .addOption(cycleOptions.cycles())
    .addOption(cycleOptions.cycle())
    .action((name: string, given: RunGiven) => {
      const stages = cycleStages.slice(0, given.until === undefined ? undefined : cycleStages.indexOf(given.until) + 1);
      return perform((context) => run(context, { name, stages, tasks: given.tasks, cycles: cyclesOf(given) }));
    });
  // The stage export has a command of its own, with more options.
  for (const stage of cycleStages.filter((one) => one !== 'export')) {
    const only = command(program, `${stage} <name>`, `run only the stage ${stage}`, `mass ${stage} first`)
      .addOption(tasksOption())
      .addOption(cycleOptions.cycle())
      .action((name: string, given: { tasks?: string[]; cycle?: number; inspect?: string | true }) => {
        const { tasks, cycle, inspect } = given;
        if (inspect === undefined)
          return perform((context) => run(context, { name, stages: [stage], tasks, cycles: cyclesOf(given) }));
        return perform((context) =>
          inspectWindows(context, { name, cycle, episode: inspect === true ? null : inspect }),
        );
      });
    if (stage === 'render') only.addOption(inspectOption()).addHelpText('after', inspectExamples);
  }
  command(
    program,
    'export <name>',
    'run only the stage export: the trained adapter becomes the next generation; or merge one',
    'mass export first --checkpoint 150 --note "the later ones overfit"\n  mass export first --merge --type q8_0 --out ./first-L1',
  )
    .addOption(new Option('--cycle <n>', 'of this cycle (default: 1)').argParser(positiveInteger))
    .option('--checkpoint <step>', 'this checkpoint, not the one of lowest validation loss', positiveInteger)
    .option('--note <text>', 'why that one')
    .option('--merge', 'write L(cycle) as one model: BF16 safetensors and a GGUF')
    .addOption(new Option('--type <type>', 'of the merged GGUF (default: bf16)').choices(['bf16', 'f16', 'q8_0']))
    .option('--out <folder>', 'new folder for the merged model')
    .action((name: string, given: ExportGiven) => perform((context) => exportGeneration(context, name, given)));
  command(program, 'demo', 'a small real cycle on a small real model', 'mass demo --data .mass').action(() =>
    perform(demo),
  );
}

interface RunGiven {
  readonly until?: (typeof cycleStages)[number];
  readonly tasks?: string[];
  readonly cycles?: number;
  readonly cycle?: number;
}

function addEvaluation(program: Command, perform: Perform): void {
  const setOption = () => new Option('--set <name>', 'the set of rollouts (default: default)');
  command(program, 'rollout <name>', 'bare-prompt runs of a generation', 'mass rollout first --generation L1')
    .addOption(
      new Option('--generation <L>', 'which generation runs').argParser(generationNumber).makeOptionMandatory(),
    )
    .option('--count <n>', 'runs of each task (a new set: 10)', positiveInteger)
    .addOption(new Option('--split <split>', 'which tasks (a new set: all)').choices(['train', 'test', 'all']))
    .addOption(setOption())
    .action((name: string, given: RolloutGiven) => perform((context) => rollout(context, { name, ...given })));
  command(
    program,
    'compare <name>',
    'judge the rollouts of two generations; without them, what there is',
    'mass compare first L1 L0',
  )
    .addArgument(new Argument('[first]', 'a generation').argParser(generationNumber))
    .addArgument(new Argument('[second]', 'the one it is compared with').argParser(generationNumber))
    .addOption(setOption())
    .action((name: string, first: number | undefined, second: number | undefined, given: { set?: string }) => {
      if (first === undefined) return perform((context) => evaluations(context, name));
      if (second === undefined) throw new MassError('usage', 'Name two generations to compare, as L1 L0.');
      return perform((context) => compare(context, { name, first, second, ...given }));
    });
}

interface RolloutGiven {
  readonly generation: number;
  readonly count?: number;
  readonly split?: 'train' | 'test' | 'all';
  readonly set?: string;
}

function addDecisions(program: Command, perform: Perform): void {
  command(
    program,
    'findings <name>',
    'what the integrity checks found; decide some of it',
    'mass findings first --clear fi_0a1b2c3d4e5f --note "constant by design"',
  )
    .addOption(new Option('--clear <ids...>', 'no problem: their runs may be selected').conflicts('uphold'))
    .option('--uphold <ids...>', 'a problem: their runs stay out')
    .option('--note <text>', 'why')
    .action((name: string, given: { clear?: string[]; uphold?: string[]; note?: string }) =>
      perform((context) => findings(context, { name, ...given })),
    );
  command(program, 'gates <name>', 'where runs stopped for a person', 'mass gates first').action((name: string) =>
    perform((context) => gates(context, name)),
  );
  for (const [verb, decision] of [
    ['approve', 'approved'],
    ['reject', 'rejected'],
  ] as const) {
    command(program, `${verb} <name> [gate]`, `${verb} an open gate, by kind or id`, `mass ${verb} first before-train`)
      .option('--note <text>', 'why')
      .action((name: string, gate: string | undefined, given: { note?: string }) =>
        perform((context) => decideGate(context, { name, gate, decision, ...given })),
      );
  }
}

function addWatching(program: Command, perform: Perform): void {
  command(program, 'status [name]', 'every experiment, or one in detail', 'mass status first')
    .addOption(cycleOptions.cycle())
    .action((name: string | undefined, given: { cycle?: number }) =>
      perform((context) => status(context, name, given.cycle)),
    );
  command(program, 'log <name>', 'what happened, in order', 'mass log first --follow')
    .option('--follow', 'go on with what comes, until Ctrl-C')
    .option('--all', 'also the small events')
    .action((name: string, given: { follow?: boolean; all?: boolean }) =>
      perform((context) => log(context, { name, follow: given.follow ?? false, all: given.all ?? false })),
    );
  command(program, 'stop [name]', 'stop one experiment, or all', 'mass stop first --after')
    .addOption(new Option('--now', 'lose what is in flight').conflicts('after'))
    .option('--after', 'finish what is in flight')
    .option('--engine', 'end the engine too')
    .action((name: string | undefined, given: { now?: boolean; after?: boolean; engine?: boolean }) => {
      const mode = given.now ? 'now' : given.after ? 'after' : null;
      return perform((context) => stop(context, { name, mode, engine: given.engine ?? false }));
    });
}
