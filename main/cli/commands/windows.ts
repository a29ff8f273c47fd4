import { type CommandContext, type CommandResult, withEngine } from '../command-context.ts';
import { printable } from '../render/format.ts';
import { paintOf } from '../render/paint.ts';
import { renderEpisodeHead, renderWindow, renderWindowSet } from '../render/render-windows.ts';

export interface InspectOptions {
  readonly name: string;
  readonly cycle?: number | undefined;
  /** an episode's id or "<task>/<run>"; null: list the episodes */
  readonly episode: string | null;
}

/** Prints the windows of an episode one after another, in full; with --json all of them, headers too, as one value. */
export const inspectWindows = (context: CommandContext, options: InspectOptions): Promise<CommandResult | null> =>
  withEngine(context, async (engine) => {
    const { name, cycle, episode } = options;
    const of = { name, ...(cycle === undefined ? {} : { cycle }) };
    const call = { signal: context.interrupted };
    if (episode === null) {
      const value = await engine.call('windows.list', of, call);
      return { value, text: printable(renderWindowSet(name, value)) };
    }
    const value = await engine.call('windows.episode', { ...of, episode }, call);
    const { episodeId, windows } = value;
    const textOf = (index: number) => engine.call('windows.text', { name, cycle: value.cycle, episodeId, index }, call);
    if (context.json) {
      const spelled = [];
      for (const window of windows) spelled.push({ ...window, ...(await textOf(window.index)) });
      return { value: { ...value, windows: spelled }, text: '' };
    }
    const paint = paintOf(process.stdout, process.env);
    context.print(renderEpisodeHead(value, paint));
    const headers = new Map<string, number>();
    for (const [i, window] of windows.entries()) {
      const text = await textOf(window.index);
      const header = text.blocks.find(({ part }) => part === 'header')?.text ?? '';
      const place = { window, number: i + 1, of: windows.length, sameHeaderAs: headers.get(header) };
      context.print(`\n${renderWindow(place, text, paint)}`);
      if (!headers.has(header)) headers.set(header, i + 1);
    }
    return null;
  });
