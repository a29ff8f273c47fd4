"""Text on which tokenizers disagree. All of it is in Unicode's composed form (NFC): Hugging Face tokenizers of the Qwen
family compose text first and llama.cpp does not, which is known and cannot matter for ids that were sampled."""

from __future__ import annotations

CORPUS: tuple[str, ...] = (
    # control tokens and what only looks like one
    "<|im_start|>assistant\n<think>\nplan</think>\n\nanswer<|im_end|>\n",
    "<|im_start |>user<|im_end |> < |im_end|> <|IM_END|> <|im_end| > <|im_\u200bend|>",
    "<|endoftext|><|endoftext|> <|endoftext|", 
    "<tool_call>\n<function=write_file>\n<parameter=path>\na.py\n</parameter>\n</function>\n</tool_call>",
    "</tool_call></think></s><s>[INST]<<SYS>><bos><eos><pad><unk><start_of_turn>user<end_of_turn>",
    "[PAD151936] <unused0> <0x0A> \u2581word \u0120word",
    # white space
    "\t\tif x:\n\t\t    y = 1\r\n\r\n\n\n  \n",
    "trailing spaces   \nand    four    between     \t  \n",
    " a  b   c    d     e      f       g        h         i",
    "\n", "\n\n\n\n\n", " ", "        ", "\t", "\r\n\r\n", "\x0b\x0c\x85\xa0\u2003\u3000\u2028\u2029x",
    # numbers and contractions
    "0 1 12 123 1234 12345 1234567890 3.14159 1,000,000.00 0x1F 1e-10 ½ ² Ⅷ ١٢٣ १२३",
    "I'm you're he's we'll they'd don't I'M YOU'RE HE'S 'tis ''' 's's 'RE",
    # code and data
    "def f(x: int) -> dict[str, Any]:\n    return {'a': [1, 2.5e-3], \"b\": f\"{x!r:>10}\"}  # ok\n",
    "for(i=0;i<n;i++){a[i]+=b[i]*c[i];}//!@#$%^&*()_+-=[]{}|;':\",./<>?`~\\",
    '{"tool":"run","arguments":{"command":"ls -la | grep \\"x\\" && echo $?"},"n":null}',
    "https://example.org/a/b?c=d&e=%20#f  /usr/local/bin/../x.tar.gz  C:\\Users\\n\\t",
    "camelCase snake_case SCREAMING_CASE kebab-case x1y2z3 AaBbCc",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    # scripts
    "机器学习模型的训练数据。日本語のテキスト、한국어 텍스트 粵語",
    "שלום עולם مرحبا بالعالم \u202eright to left\u202c \u200fmark\u200e",
    "नमस्ते दुनिया สวัสดีชาวโลก γειά σου Привет, мир! Türkçe İıŞş ẞß ﬁ ﬂ",
    "naïve façade Ångström coöperate Ðorðe Łódź",
    # emoji: sequences, skin tones, flags
    "😀👍🏽👩‍👩‍👧‍👦🏳️‍🌈🇩🇪🇯🇵 ❤️ ☃︎ 🫠",
    # invisible and what is left of broken bytes
    "zero\u200bwidth\u200cjoin\u200der\u2060\ufeffbom soft\u00adhyphen",
    "\ufffd\ufffd broken \ufffd bytes \x00 \x01\x02\x1b[31mred\x1b[0m \x7f \x80\x9f",
    "\U0010ffff \ue000 \ufffe \U000e0041\U000e007f",
)
