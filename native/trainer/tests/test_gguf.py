"""What a GGUF says about itself, which ones training refuses to start from, and files that are none."""

from __future__ import annotations

import os
import random
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers

from trainer.base import load_model, refuse_inexact
from trainer.errors import TrainerError
from trainer.gguf_file import GgufHeader
from trainer.protocol import Base, Model
from trainer.testing.vocabulary_gguf import read_vocabulary, write_vocabulary_gguf


def write(path: str, architecture: str, tensors: tuple[str, ...] = (), **values: Any) -> str:
    writer = gguf.GGUFWriter(path, architecture)
    defaults = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4}
    for key, value in {**defaults, **{k.replace("__", "."): v for k, v in values.items()}}.items():
        add = writer.add_string if isinstance(value, str) else writer.add_uint32
        add(f"{architecture}.{key}", value)
    for name in ("token_embd.weight", *tensors):
        writer.add_tensor(name, np.zeros((8, 64), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


READABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with its head dimension stated": ("llama", {"attention__key_length": 16}),
    "no scaling, said": ("qwen2", {"rope__scaling__type": "none"}),
    "qwen3 of head dimension 128": ("qwen3", {"attention__key_length": 128}),
    "hybrid": ("qwen35", {"attention__key_length": 32}),
    "gemma3 of head dimension 256": ("gemma3", {"attention__key_length": 256}),
}
REFUSED: dict[str, tuple[str, tuple[str, ...], dict[str, Any], str]] = {
    "an unknown architecture": ("mamba", (), {}, "architecture mamba"),
    "linear rotary scaling": ("gemma3", (), {"attention__key_length": 256, "rope__scaling__type": "linear"}, "scaling \\(linear\\)"),
    "yarn": ("qwen35", (), {"rope__scaling__type": "yarn"}, "scaling \\(yarn\\)"),
    "llama 3 frequencies": ("llama", ("rope_freqs.weight",), {}, "Llama 3"),
    "attention biases": ("llama", ("blk.0.attn_q.bias",), {}, "biases"),
    "experts": ("llama", (), {"expert_count": 8}, "experts"),
    "qwen3 of another head dimension": ("qwen3", (), {"attention__key_length": 64}, "head dimension is 64"),
    "qwen3 without its head dimension": ("qwen3", (), {}, "head dimension is None"),
    "llama with wide heads": ("llama", (), {"attention__key_length": 32}, "head dimension 32"),
    "gemma3 of another head dimension": ("gemma3", (), {"attention__key_length": 128}, "attention scale"),
    "gemma3 27b": ("gemma3", (), {"attention__key_length": 256, "block_count": 62}, "attention scale"),
}


@pytest.mark.parametrize(("architecture", "values"), READABLE.values(), ids=READABLE.keys())
def test_files_that_are_read_exactly_pass(tmp_path: Any, architecture: str, values: dict[str, Any]) -> None:
    header = GgufHeader(write(f"{tmp_path}/m.gguf", architecture, **values))
    refuse_inexact(header)
    assert header.architecture == architecture and header.tensors == {"token_embd.weight": (8, 64)}


@pytest.mark.parametrize(("architecture", "tensors", "values", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_files_that_would_become_another_model_are_refused(
    tmp_path: Any, architecture: str, tensors: tuple[str, ...], values: dict[str, Any], says: str
) -> None:
    path = write(f"{tmp_path}/m.gguf", architecture, tensors, **values)
    with pytest.raises(TrainerError, match=says) as refusal:
        load_model(Model(Base("gguf", path), []), torch.device("cpu"), torch.float32)
    assert refusal.value.code == "invalid_input" and "train.base" in refusal.value.message


def test_a_header_reads_what_the_library_reads(model_folder: Any, tmp_path: Any) -> None:
    vocabulary = read_vocabulary(model_folder("llama"))
    header = GgufHeader(write_vocabulary_gguf(f"{tmp_path}/v.gguf", vocabulary))
    reader = gguf.GGUFReader(f"{tmp_path}/v.gguf")
    assert header.strings("tokenizer.ggml.tokens") == reader.fields["tokenizer.ggml.tokens"].contents() == vocabulary["tokens"]
    assert header.value("tokenizer.ggml.token_type") == reader.fields["tokenizer.ggml.token_type"].contents()
    assert header.number("tokenizer.ggml.eos_token_id") == 2
    table = reader.tensors[0]
    assert header.places == {"token_embd.weight": (0, table.data_offset)}
    assert header.number("tokenizer.ggml.model") is None and header.text("tokenizer.ggml.eos_token_id") is None


def test_bytes_that_are_no_gguf_are_refused_and_never_crash(model_folder: Any, tmp_path: Any) -> None:
    path = write_vocabulary_gguf(f"{tmp_path}/v.gguf", read_vocabulary(model_folder("llama")))
    with open(path, "rb") as file:
        whole = file.read()
    header_end = GgufHeader(path).places["token_embd.weight"][1]
    generator, broken = random.Random(3), f"{tmp_path}/broken.gguf"
    cases = [b"", b"GGUF", b"GGML" + whole[4:], whole[:24], whole[: header_end // 2], os.urandom(4096)]
    for _ in range(200):  # a wrong byte somewhere in counts, lengths, kinds
        place = generator.randrange(4, 400)
        cases.append(whole[:place] + bytes([generator.randrange(256)]) + whole[place + 1 :])
    refused = 0
    for data in cases:
        with open(broken, "wb") as file:
            file.write(data)
        try:
            GgufHeader(broken)
        except TrainerError as error:
            assert error.code == "invalid_input"
            refused += 1
    assert refused >= 30


def test_a_missing_file_is_said(tmp_path: Any) -> None:
    with pytest.raises(TrainerError) as refusal:
        GgufHeader(f"{tmp_path}/none.gguf")
    assert refusal.value.code == "not_found"


def test_an_unknown_family_of_a_folder_is_refused(tmp_path: Any) -> None:
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    with pytest.raises(TrainerError, match="does not know the architecture gpt2"):
        load_model(Model(Base("folder", str(tmp_path)), []), torch.device("cpu"), torch.float32)
