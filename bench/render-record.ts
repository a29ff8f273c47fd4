import { silentLogger } from '../main/common/base/logger.ts';
import { seededRandom } from '../main/common/base/seeded-random.ts';
import type { AssistantMessage, Message } from '../main/common/domain/chat.ts';
import type { ExperimentConfigInput } from '../main/common/domain/config.ts';
import { composeTeacherPrompt } from '../main/common/domain/workflow-block.ts';
import { createExperiment, requireExperiment } from '../main/engine/experiments.ts';
import { openStore, type Store } from '../main/engine/store/store.ts';
import { EpisodeRecorder, recordedModelSha256, startEpisode } from '../main/engine/testing/recorded-episode.ts';
import { writeFile } from '../main/inference/chat/testing/requests.ts';
import { inProcessVocabulary } from '../main/inference/testing/in-process-vocabulary.ts';
import { smolLm2Model } from '../main/inference/testing/smollm2.ts';
import { openVocabulary } from '../main/inference/vocabulary/vocabulary.ts';

export const modelId = 'smollm2';
const taskId = 'drug-safety';
const config: ExperimentConfigInput = {
  model: { id: modelId, contextSize: 65_536, sequences: 1, gpu: 'off' },
  tasks: { library: 'builtin', train: [taskId], test: [] },
  sampling: { thinking: false },
  // A third of the defaults, so that the orchestrators' threads are cut.
  render: { windowTokens: 16_384, overlapTokens: 2731 },
};
/** Turns of an orchestrator and of each of its workers: threads of about 27,000 and 9,000 tokens. */
const turns = [45, 15, 15, 15, 15];

/** Records episodes of the shape of real ones, with words of a seeded generator, until they hold `tokens` tokens. */
export async function recordEpisodes(folder: string, tokens: number): Promise<void> {
  const store = openStore(folder);
  const path = await smolLm2Model();
  const tokenizer = await openVocabulary({ path, modelId }, silentLogger);
  try {
    store.append({
      type: 'model.registered',
      modelId,
      path,
      bytes: 0,
      sha256: recordedModelSha256,
      architecture: 'llama',
      source: 'bench',
    });
    await createExperiment(store, { name: 'bench', config, massVersion: 'bench' });
    const writer = new SyntheticEpisodes(store, inProcessVocabulary(tokenizer.model));
    const episodes: string[] = [];
    while (writer.tokens < tokens) episodes.push(await writer.record(episodes.length));
    const { experimentId } = requireExperiment(store, 'bench');
    store.append({
      type: 'selection.made',
      experimentId,
      cycle: 1,
      taskId,
      provenWin: true,
      flagged: false,
      flagJson: '[]',
      entries: episodes.map((episodeId, i) => ({ episodeId, rank: i + 1, decision: i === 1 ? 'validate' : 'train' })),
    });
  } finally {
    await tokenizer.dispose();
    store.close();
  }
}

class SyntheticEpisodes {
  /** in conversations, recorded so far */
  tokens = 0;
  readonly #store: Store;
  readonly #vocabulary: ReturnType<typeof inProcessVocabulary>;
  readonly #random = seededRandom(1);

  constructor(store: Store, vocabulary: ReturnType<typeof inProcessVocabulary>) {
    this.#store = store;
    this.#vocabulary = vocabulary;
  }

  async record(replicate: number): Promise<string> {
    const store = this.#store;
    const { experimentId } = requireExperiment(store, 'bench');
    const generationId = store.experiments.generations(experimentId)[0]?.generationId ?? '';
    const barePrompt = store.artifacts.text(store.tasks.of(experimentId)[0]?.promptHash ?? '');
    const block = JSON.stringify({ agents: [{ agent_id: 'a', role: this.#words(10), instruction: this.#words(300) }] });
    const prompt = composeTeacherPrompt({ barePrompt, block, directive: this.#words(60) });
    const attempt = startEpisode(store, { experimentId, generationId, taskId, replicate, prompt });
    const vocabulary = this.#vocabulary;
    const recorder = new EpisodeRecorder({ store, vocabulary, attempt, tools: [writeFile], thinking: false });
    for (const [i, count] of turns.entries()) {
      const thread = recorder.thread(i === 0 ? 'orchestrator' : 'worker', `t${i}`);
      await this.#converse(recorder, { thread, count, first: i === 0 ? prompt : this.#words(200) });
    }
    await recorder.end();
    return attempt.episodeId;
  }

  async #converse(
    recorder: EpisodeRecorder,
    { thread, count, first }: { thread: string; count: number; first: string },
  ): Promise<void> {
    const messages: Message[] = [
      { role: 'system', content: this.#words(150) },
      { role: 'user', content: first },
    ];
    for (let i = 0; i < count; i++) {
      const args = { path: `part-${i}.md`, content: this.#words(120) };
      const id = `${thread}:${i}`;
      const message: AssistantMessage = {
        role: 'assistant',
        content: '',
        toolCalls: [{ id, name: 'write_file', arguments: JSON.stringify(args) }],
      };
      const said = JSON.stringify({ tool: 'write_file', arguments: args });
      const sampledIds = this.#vocabulary.tokenize(`${said}<|im_end|>`);
      const { promptTokens } = await recorder.answer(thread, { messages, message, sampledIds });
      if (i === count - 1) this.tokens += promptTokens + sampledIds.length;
      messages.push(message, { role: 'tool', toolCallId: id, content: this.#words(200) });
    }
  }

  /** Words, numbers and signs, as reports and program output have them. */
  #words(count: number): string {
    const parts: string[] = [];
    for (let i = 0; i < count; i++) {
      const word = vocabularyOfWords[Math.floor(this.#random() * vocabularyOfWords.length)] ?? '';
      parts.push(this.#random() < 0.1 ? (this.#random() * 1000).toFixed(3) : word);
    }
    return parts.join(' ').replaceAll(' .', '.');
  }
}

const vocabularyOfWords =
  `the a of and to in is that it was for on are with as be this have from or one by but not what all were when we there can
  an your which their if do will each about how up out them then she many some so these would other into has more two like
  him see time could no make than first been its who now people my made over did down only way find use may water long
  little very after words called just where most know report metrics data frame column mean error figure table script
  import def return print( plot.savefig( value, model.fit( test, train, seed, result = == ) . . . , : \n \n {"key": },`.split(
    ' ',
  );
