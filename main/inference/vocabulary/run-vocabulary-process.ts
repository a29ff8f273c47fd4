import { MassError, toErrorData } from '../../common/base/errors.ts';
import type { Logger } from '../../common/base/logger.ts';
import { type FromVocabulary, ToVocabulary } from '../../common/protocol/vocabulary.ts';
import { Conversations } from './conversations.ts';
import { openVocabulary, type Vocabulary } from './vocabulary.ts';

type Request = Exclude<ToVocabulary, { kind: 'shutdown' }>;

/** The vocabulary process: one model, requests answered in order. It ends with its parent and on `shutdown`. */
export function runVocabularyProcess(): void {
  if (process.send === undefined)
    throw new MassError('usage', 'The vocabulary process is started by the engine, not by hand.');
  const server = new VocabularyServer();
  process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
  // Ctrl-C in a terminal reaches the whole group; the engine decides when this process stops.
  process.on('SIGINT', () => undefined);
  let turn: Promise<void> = Promise.resolve();
  process.on('message', (raw) => {
    turn = turn.then(() => server.receive(raw));
  });
}

class VocabularyServer {
  readonly #logger: Logger = {
    log: (level, message, fields) =>
      send({
        kind: 'log',
        level,
        message,
        ...(fields === undefined ? {} : { fields: { text: JSON.stringify(fields) } }),
      }),
  };
  #open: { readonly vocabulary: Vocabulary; readonly conversations: Conversations } | null = null;

  async receive(raw: unknown): Promise<void> {
    const parsed = ToVocabulary.safeParse(raw);
    if (!parsed.success) {
      this.#logger.log('error', 'The engine sent a message that does not parse.', { issue: parsed.error.message });
      return;
    }
    if (parsed.data.kind === 'shutdown') {
      await this.#open?.vocabulary.dispose();
      process.exit(0);
    }
    const { id } = parsed.data;
    try {
      send(await this.#answer(parsed.data));
    } catch (error) {
      send({ kind: 'refused', id, error: toErrorData(error) });
    }
  }

  async #answer(request: Request): Promise<FromVocabulary> {
    const { id } = request;
    if (request.kind === 'open') {
      if (this.#open !== null) throw new MassError('conflict', 'A vocabulary is open already; start another process.');
      const vocabulary = await openVocabulary(request, this.#logger);
      const conversations = new Conversations(vocabulary.model);
      this.#open = { vocabulary, conversations };
      return { kind: 'opened', id, status: { ...vocabulary.status, family: conversations.family } };
    }
    const conversations = this.#open?.conversations;
    if (!conversations) throw new MassError('internal', 'No vocabulary is open in this process.');
    switch (request.kind) {
      case 'learn':
        return { kind: 'learned', id, wrong: conversations.learn(request.request) };
      case 'render':
        return { kind: 'rendered', id, rendered: conversations.render(request.request) };
      case 'spell':
        return { kind: 'spelled', id, texts: conversations.spell(request.pieces) };
      case 'forget':
        conversations.forget(request.owner);
        return { kind: 'forgotten', id };
    }
  }
}

function send(message: FromVocabulary): void {
  process.send?.(message, undefined, undefined, () => undefined);
}
