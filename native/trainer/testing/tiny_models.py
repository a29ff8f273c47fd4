"""Tiny random-weight models for tests, saved as Hugging Face folders: no download, a forward pass in milliseconds.

Weights are widened so that the next token depends strongly on the whole prefix, on every layer and on every adapter.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
import transformers
from torch import nn

VOCABULARY = 512
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
# A byte-level tokenizer's fingerprint is known to llama.cpp only for published models.
TOKENIZER_PRE = "qwen2"

HYBRID_TARGETS = (
    "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj in_proj_qkv in_proj_z out_proj".split()
)
LLAMA_TARGETS = HYBRID_TARGETS[:7]


def write_tokenizer(folder: str) -> None:
    """A byte-level BPE of the 256 bytes, some merges and special tokens, padded to VOCABULARY entries."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=SPECIAL, show_progress=False
    )
    text = "A worker reads the task, measures twice, and reports what the numbers say to the orchestrator. " * 20
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.add_tokens([AddedToken(f"<|unused{i}|>") for i in range(VOCABULARY - tokenizer.get_vocab_size())])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    ).save_pretrained(folder)


def tiny_llama(folder: str, *, seed: int = 0, layers: int = 2) -> str:
    """Grouped-query attention, untied head; 2 layers of width 64."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        **_special_ids(),
    )
    return _save(transformers.LlamaForCausalLM, config, folder, seed)


def tiny_qwen2(folder: str, *, seed: int = 0) -> str:
    """Biases on query, key and value; tied head."""
    config = transformers.Qwen2Config(**_small(), tie_word_embeddings=True)
    return _save(transformers.Qwen2ForCausalLM, config, folder, seed)


def tiny_qwen3(folder: str, *, seed: int = 0) -> str:
    """Norms of query and key, heads wider than width / heads."""
    config = transformers.Qwen3Config(**_small(), head_dim=24, tie_word_embeddings=True)
    return _save(transformers.Qwen3ForCausalLM, config, folder, seed)


def tiny_gemma3(folder: str, *, seed: int = 0) -> str:
    """Four norms a layer, scaled embeddings, and a sliding window of 16 tokens in the first of two layers."""
    config = transformers.Gemma3TextConfig(
        **_small(),
        head_dim=24,
        query_pre_attn_scalar=24,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
    )
    return _save(transformers.Gemma3ForCausalLM, config, folder, seed)


def tiny_hybrid(folder: str, *, seed: int = 0) -> str:
    """The Qwen3.5/3.6 architecture with its vision part: 3 gated-DeltaNet layers and 1 attention layer, 3 value heads
    to a key head (with as many of both, the order of heads could not go wrong)."""
    text = dict(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        linear_key_head_dim=32,
        linear_value_head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=6,
        max_position_embeddings=4096,
        rope_parameters=dict(
            rope_type="default",
            rope_theta=10000.0,
            partial_rotary_factor=0.5,
            mrope_section=[3, 3, 2],
            mrope_interleaved=True,
        ),
        mtp_num_hidden_layers=0,
        tie_word_embeddings=False,
        **_special_ids(),
    )
    vision = dict(
        depth=1, hidden_size=32, intermediate_size=64, num_heads=2, out_hidden_size=128, num_position_embeddings=16
    )
    config = transformers.Qwen3_5Config(
        text_config=text,
        vision_config=vision,
        image_token_id=508,
        video_token_id=509,
        vision_start_token_id=510,
        vision_end_token_id=511,
        tie_word_embeddings=False,
    )
    return _save(transformers.Qwen3_5ForConditionalGeneration, config, folder, seed)


def random_adapter(model_folder: str, out: str, *, rank: int = 8, alpha: float = 16, seed: int = 1, **options: Any) -> str:
    """A PEFT adapter with both factors random, on the language model's `targets` (default: all of the family's)."""
    from peft import LoraConfig, get_peft_model

    with open(os.path.join(model_folder, "config.json"), encoding="utf-8") as file:
        name = json.load(file)["architectures"][0]
    network = getattr(transformers, name).from_pretrained(model_folder, dtype=torch.float32)
    hybrid = hasattr(network.model, "language_model")
    targets = options.get("targets", HYBRID_TARGETS if hybrid else LLAMA_TARGETS)
    scope = r".*language_model\..*" if hybrid else r".*layers\..*"
    torch.manual_seed(seed)
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=0.0,
        target_modules=rf"{scope}\.({'|'.join(targets)})",
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(network, config)
    with torch.no_grad():
        for key, parameter in adapted.named_parameters():
            if "lora_B" in key:
                parameter.copy_(torch.randn_like(parameter) * options.get("size", 0.05))
    adapted.save_pretrained(out)
    return out


def _small() -> dict[str, Any]:
    return dict(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        **_special_ids(),
    )


def _special_ids() -> dict[str, Any]:
    return dict(
        bos_token_id=None, eos_token_id=SPECIAL.index("<|im_end|>"), pad_token_id=SPECIAL.index("<|endoftext|>")
    )


def _save(kind: Any, config: Any, folder: str, seed: int) -> str:
    torch.manual_seed(seed)
    network: nn.Module = kind(config).float()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "visual" in name:
                continue
            if name.endswith("A_log"):
                parameter.copy_(torch.log(torch.rand_like(parameter) * 0.5 + 0.05))
            elif name.endswith("dt_bias"):
                parameter.copy_(torch.randn_like(parameter) * 0.5)
            elif name.endswith("norm.weight"):
                parameter.add_(torch.randn_like(parameter) * 0.2)
            elif parameter.ndim >= 2:
                parameter.mul_(4.0)
    network.save_pretrained(folder)
    write_tokenizer(folder)
    return folder
