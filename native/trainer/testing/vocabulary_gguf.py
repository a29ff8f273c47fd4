"""Writes a GGUF that holds a folder's vocabulary and its embedding table, and no other weights."""

from __future__ import annotations

import json
import os
from typing import Any

import gguf
from safetensors.numpy import load_file


def read_vocabulary(folder: str) -> dict[str, Any]:
    """tokens, types, merges, the end of a turn and the embeddings, as llama.cpp's converter takes them from a folder."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as file:
        described = json.load(file)
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        end = json.load(file)["eos_token"]
    table = dict(described["model"]["vocab"])
    kinds = dict.fromkeys(table.values(), gguf.TokenType.NORMAL)
    for entry in described["added_tokens"]:
        table[entry["content"]] = entry["id"]
        kinds[entry["id"]] = gguf.TokenType.CONTROL if entry["special"] else gguf.TokenType.USER_DEFINED
    tokens = [text for text, _ in sorted(table.items(), key=lambda item: item[1])]
    merges = [m if isinstance(m, str) else " ".join(m) for m in described["model"]["merges"]]
    weights = load_file(os.path.join(folder, "model.safetensors"))
    return {
        "tokens": tokens,
        "types": [kinds[i] for i in range(len(tokens))],
        "merges": merges,
        "end": table[end],
        "embeddings": next(weights[name] for name in weights if name.endswith("embed_tokens.weight")),
    }


def write_vocabulary_gguf(path: str, vocabulary: dict[str, Any], *, pre: str = "gpt-2", kind: str = "F32") -> str:
    """`kind`: number format of the embedding table."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["types"])
    writer.add_token_merges(vocabulary["merges"])
    writer.add_eos_token_id(vocabulary["end"])
    number = gguf.GGMLQuantizationType[kind]
    writer.add_tensor("token_embd.weight", gguf.quants.quantize(vocabulary["embeddings"], number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
