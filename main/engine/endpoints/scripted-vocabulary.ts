import { sha256 } from '../../node/hashing.ts';
import { promptPieces, sampledText } from './scripted-endpoint.ts';
import type { Vocabulary } from './vocabulary.ts';

const encode = (text: string): Uint8Array => Buffer.from(text, 'utf8');

/** The vocabulary of scripted endpoints: tokens are the bytes of UTF-8, and the template is theirs. */
export function createScriptedVocabulary(): Vocabulary {
  return {
    status: { size: 256, sha256: sha256('bytes'), family: 'scripted' },
    learn: async ({ answers }) =>
      answers.flatMap(({ message, sampledIds }, index) =>
        Buffer.from(sampledText(message), 'utf8').equals(Buffer.from(sampledIds)) ? [] : [index],
      ),
    render: async (request) => {
      const pieces = promptPieces(request).map(encode);
      let at = 0;
      const starts = pieces.map((piece) => {
        const start = at;
        at += piece.length;
        return start;
      });
      return { ids: Uint32Array.from(Buffer.concat(pieces)), starts };
    },
    spell: async (pieces) => pieces.map((ids) => Buffer.from(ids).toString('utf8')),
    forget: () => Promise.resolve(),
    dispose: () => Promise.resolve(),
  };
}
