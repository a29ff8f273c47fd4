"""Writes a tiny random-weight GGUF of the hybrid architecture `qwen35` (gated DeltaNet layers with one attention layer
in every four), so that tests of prefix reuse run on the real kernels without a download.

    python make_tiny_hybrid.py OUT.gguf

The weights mean nothing; what matters is that the next-token distribution depends strongly on the whole prefix, so
that a stale recurrent state or a wrong KV cell shows. Needs numpy and gguf only (requirements.txt).
"""

import argparse
import json
import os
from collections import Counter

import gguf
import numpy as np

# Shape. Layers 0-2 are recurrent, layer 3 attends (full_attention_interval 4).
LAYERS, ATTENTION_INTERVAL = 4, 4
EMBED, FEED_FORWARD = 128, 256
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 32
STATE_DIM, KEY_HEADS, VALUE_HEADS, CONV_KERNEL = 32, 2, 4, 4
ROPE_DIMS, ROPE_SECTIONS = 16, [3, 3, 2, 0]  # sections count pairs: 8 pairs = 16 dimensions
CONTEXT = 32768
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
MERGES = 96

# Qwen-like turns; think tags stay where the model put them.
CHAT_TEMPLATE = (
    "{%- for m in messages -%}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n<think>\n{%- endif -%}"
)

SAMPLE = (
    "The team reads the task, writes a plan, and delegates one part to each worker. "
    'A worker answers with {"result": "a file", "notes": ["first", "second"]} and the orchestrator checks the numbers. '
    "You are a careful analyst; the report must name its sources and state every assumption. "
) * 8


def byte_symbols() -> list[str]:
    """Printable stand-ins for the 256 byte values, as byte-level BPE spells them (GPT-2)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    symbols, extra = {}, 0
    for value in range(256):
        if value in plain:
            symbols[value] = chr(value)
        else:
            symbols[value] = chr(256 + extra)
            extra += 1
    return [symbols[value] for value in range(256)]


def learn_merges(text: str, symbols: list[str], count: int) -> list[tuple[str, str]]:
    """Greedy byte-pair merges over space-led words; ties go to the pair seen first, so the result is reproducible."""
    words = Counter(tuple(symbols[b] for b in (" " + word).encode()) for word in text.split())
    merges: list[tuple[str, str]] = []
    for _ in range(count):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += times
        if not pairs:
            break
        best = pairs.most_common(1)[0][0]
        merges.append(best)
        merged: Counter[tuple[str, ...]] = Counter()
        for word, times in words.items():
            out, i = [], 0
            while i < len(word):
                if word[i : i + 2] == best:
                    out.append(best[0] + best[1])
                    i += 2
                else:
                    out.append(word[i])
                    i += 1
            merged[tuple(out)] += times
        words = merged
    return merges


def vocabulary() -> tuple[list[str], list[int], list[str]]:
    symbols = byte_symbols()
    merges = learn_merges(SAMPLE, symbols, MERGES)
    tokens = [*SPECIAL, *symbols, *dict.fromkeys(a + b for a, b in merges)]
    kinds = [
        gguf.TokenType.CONTROL if token.startswith("<|") else gguf.TokenType.USER_DEFINED for token in SPECIAL
    ] + [gguf.TokenType.NORMAL] * (len(tokens) - len(SPECIAL))
    return tokens, kinds, [f"{a} {b}" for a, b in merges]


def write_metadata(writer: gguf.GGUFWriter) -> int:
    tokens, kinds, merges = vocabulary()
    writer.add_name("tiny hybrid")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(EMBED)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(ROPE_DIMS)
    writer.add_rope_dimension_sections(ROPE_SECTIONS)
    writer.add_ssm_conv_kernel(CONV_KERNEL)
    writer.add_ssm_inner_size(STATE_DIM * VALUE_HEADS)
    writer.add_ssm_state_size(STATE_DIM)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_group_count(KEY_HEADS)
    writer.add_full_attention_interval(ATTENTION_INTERVAL)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    return len(tokens)


def tensors(vocab: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Names and shapes as llama.cpp's qwen35 loader asks for them; numpy shapes are (out, in)."""

    def weight(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    def near_one(size: int) -> np.ndarray:
        return (1.0 + 0.2 * rng.standard_normal(size)).astype(np.float32)

    key_dim, value_dim = STATE_DIM * KEY_HEADS, STATE_DIM * VALUE_HEADS
    out = {
        "token_embd.weight": rng.standard_normal((vocab, EMBED)).astype(np.float32),
        "output.weight": weight(vocab, EMBED, 1.5),
        "output_norm.weight": near_one(EMBED),
    }
    for layer in range(LAYERS):
        p = f"blk.{layer}."
        out[p + "attn_norm.weight"] = near_one(EMBED)
        out[p + "post_attention_norm.weight"] = near_one(EMBED)
        if (layer + 1) % ATTENTION_INTERVAL == 0:
            out[p + "attn_q.weight"] = weight(HEADS * HEAD_DIM * 2, EMBED)  # query and output gate
            out[p + "attn_k.weight"] = weight(KV_HEADS * HEAD_DIM, EMBED)
            out[p + "attn_v.weight"] = weight(KV_HEADS * HEAD_DIM, EMBED)
            out[p + "attn_output.weight"] = weight(EMBED, HEADS * HEAD_DIM)
            out[p + "attn_q_norm.weight"] = near_one(HEAD_DIM) * 2
            out[p + "attn_k_norm.weight"] = near_one(HEAD_DIM) * 2
        else:
            out[p + "attn_qkv.weight"] = weight(key_dim * 2 + value_dim, EMBED)
            out[p + "attn_gate.weight"] = weight(value_dim, EMBED)
            out[p + "ssm_conv1d.weight"] = weight(key_dim * 2 + value_dim, CONV_KERNEL)
            out[p + "ssm_dt.bias"] = (0.5 * rng.standard_normal(VALUE_HEADS)).astype(np.float32)
            out[p + "ssm_a"] = -rng.uniform(0.01, 0.2, VALUE_HEADS).astype(np.float32)  # slow decay: long memory
            out[p + "ssm_alpha.weight"] = weight(VALUE_HEADS, EMBED)
            out[p + "ssm_beta.weight"] = weight(VALUE_HEADS, EMBED)
            out[p + "ssm_norm.weight"] = near_one(STATE_DIM)
            out[p + "ssm_out.weight"] = weight(EMBED, value_dim)
        out[p + "ffn_gate.weight"] = weight(FEED_FORWARD, EMBED)
        out[p + "ffn_up.weight"] = weight(FEED_FORWARD, EMBED)
        out[p + "ffn_down.weight"] = weight(EMBED, FEED_FORWARD)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()

    partial = f"{args.out}.{os.getpid()}.partial"
    writer = gguf.GGUFWriter(partial, "qwen35")
    vocab = write_metadata(writer)
    arrays = tensors(vocab, np.random.default_rng(args.seed))
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(partial, args.out)
    print(json.dumps({"out": args.out, "vocabulary": vocab, "parameters": int(sum(a.size for a in arrays.values()))}))


if __name__ == "__main__":
    main()
