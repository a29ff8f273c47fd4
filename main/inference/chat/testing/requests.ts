import type { ToolDefinition } from '../../../common/domain/chat.ts';
import type { ChatRequest } from '../chat-format.ts';

export const writeFile: ToolDefinition = {
  name: 'write_file',
  description: 'Writes a file.',
  parameters: {
    type: 'object',
    properties: {
      path: { type: 'string' },
      content: { type: 'string', maxLength: 400 },
      lines: { type: 'integer' },
      tags: { type: 'array', items: { type: 'string' } },
      append: { type: 'boolean' },
    },
    required: ['path', 'content'],
  },
};

export const request = (messages: ChatRequest['messages'], change: Partial<ChatRequest> = {}): ChatRequest => ({
  messages,
  tools: [],
  toolChoice: 'auto',
  responseSchema: null,
  thinking: true,
  templateVariables: {},
  sharedPrefix: null,
  maxTokens: null,
  ...change,
});
