import type { Completion, CompletionRequest, Endpoint } from '../../endpoints/endpoint.ts';

/** Four characters a token, rounded up: enough to test budgets with worked numbers. */
export const fourCharacters = (text: string): number => Math.ceil(text.length / 4);

export interface FakeEndpoint extends Endpoint {
  readonly requests: CompletionRequest[];
}

/** Answers with the given contents in turn (the last one again when they run out) and keeps every request. */
export function fakeEndpoint(
  contents: readonly (string | { content: string; finishReason: 'length' })[],
  contextTokens = 8192,
): FakeEndpoint {
  const requests: CompletionRequest[] = [];
  return {
    contextTokens,
    requests,
    countTokens: async (text) => fourCharacters(text),
    complete: async (request): Promise<Completion> => {
      const scripted = contents[Math.min(requests.length, contents.length - 1)] ?? '';
      requests.push(request);
      const { content, finishReason } =
        typeof scripted === 'string' ? { content: scripted, finishReason: 'stop' as const } : scripted;
      const promptTokens = promptTokensOf(request);
      return {
        completionId: `completion-${requests.length}`,
        message: { role: 'assistant', content },
        finishReason,
        usage: {
          promptTokens,
          cachedTokens: 0,
          evaluatedTokens: promptTokens,
          completionTokens: fourCharacters(content),
        },
      };
    },
  };
}

export const promptTokensOf = ({ messages }: CompletionRequest): number =>
  messages.reduce((sum, { content }) => sum + fourCharacters(content), 0);
