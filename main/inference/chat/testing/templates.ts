/** Plain ChatML: no tools, no reasoning. */
export const chatMl = `{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;

const history = (calls: string) => `
{%- if tools %}
{{- '<|im_start|>system\\nTools:' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\nForm: <tool_call> </tool_call>' }}
{%- if messages[0].role == 'system' %}{{- '\\n\\n' + messages[0].content | trim }}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content | trim + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}
{%- if message.role == 'user' and not message.content.startswith('<tool_response>') %}{%- set ns.last = loop.index0 %}{%- endif %}
{%- endfor %}
{%- if ns.last < 0 %}{{- raise_exception('A user message is needed.') }}{%- endif %}
{%- for message in messages %}
{%- set content = message.content | trim %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{%- set reasoning = message.reasoning_content | trim if message.reasoning_content is string else '' %}
{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1] | trim %}{%- endif %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.last or preserve_thinking %}{{- '<think>\\n' + reasoning + '\\n</think>\\n\\n' }}{%- endif %}
{{- content }}
{%- for item in message.tool_calls or [] %}
{%- set call = item.function %}
{%- if not loop.first %}{{- '\\n' }}{%- elif content %}{{- '\\n\\n' }}{%- endif %}
${calls}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- elif not loop.first %}
{{- raise_exception('A system message comes first.') }}
{%- endif %}
{%- endfor %}`;

/** Calls as XML, reasoning opened by the generation prompt and dropped before the last user message (as Qwen3.5). */
export const qwenLike = `${history(`{{- '<tool_call>\\n<function=' + call.name + '>\\n' }}
{%- for key, value in call.arguments | items %}
{{- '<parameter=' + key + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' }}
{%- endfor %}
{{- '</function>\\n</tool_call>' }}`)}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n<think>\\n' }}
{%- if enable_thinking is false %}{{- '\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}`;

/** Calls as JSON, reasoning opened by the model itself (as Qwen3). */
export const hermesLike = `${history(`{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' + call.arguments | tojson + '}\\n</tool_call>' }}`)}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}`;
