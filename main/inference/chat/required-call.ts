import type { ChatFormat, ChatRequest } from './chat-format.ts';

/*
 * A call is required of a model with a tool format by beginning it in the prompt. In later prompts the same beginning has
 * to stand before the sampled ids, which do not hold it.
 */

export type Family = ChatFormat['family'];
type NativeFamily = Exclude<Family, 'json'>;

export function familyOf(template: string): Family {
  if (template.includes('<function=')) return 'qwen-xml';
  return template.includes('<tool_call>') ? 'hermes' : 'json';
}

const openTag = '<tool_call>';
const closeTag = '</tool_call>';

/** Beginning of a call; with a name, of a call of that tool. */
function beginning(family: NativeFamily, name: string | null): string {
  if (name === null) return `${openTag}\n`;
  if (family === 'qwen-xml') return `${openTag}\n<function=${name}>\n`;
  return `${openTag}\n{"name": ${JSON.stringify(name)}, "arguments":`;
}

/** What the prompt ends in for this choice; "" when the model is free to call or not. */
export function suppliedFor(family: NativeFamily, choice: ChatRequest['toolChoice']): string {
  if (typeof choice === 'object') return beginning(family, choice.name);
  return choice === 'required' ? beginning(family, null) : '';
}

/** What the prompt had supplied of an answer that was sampled as `text` and holds a call of `firstCall`; "": nothing. */
export function suppliedBefore(family: NativeFamily, text: string, firstCall: string): string {
  const closes = text.indexOf(closeTag);
  const opens = text.indexOf(openTag);
  if (closes < 0 || (opens >= 0 && opens < closes)) return '';
  const named = family === 'qwen-xml' ? !/^\s*<function=/.test(text) : closesOneMore(text);
  return beginning(family, named ? firstCall : null);
}

/** Whether a JSON object at the start is followed by a brace of another one, which was opened before it. */
function closesOneMore(text: string): boolean {
  let depth = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const character = text[i];
    if (inString && character === '\\') i++;
    else if (character === '"') inString = !inString;
    else if (inString) continue;
    else if (character === '{') depth++;
    else if (character === '}' && --depth === 0)
      return text
        .slice(i + 1)
        .trimStart()
        .startsWith('}');
  }
  return false;
}
