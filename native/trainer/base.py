"""Loads a `Model`: base weights from a Hugging Face folder or a GGUF, with earlier adapters merged in."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
import transformers
from torch import nn

from .errors import TrainerError
from .gguf_file import GgufHeader
from .protocol import Base, Model

# Families whose layers and adapter targets are known (`targets.py`), by `model_type` of the text configuration.
FAMILIES = ("llama", "qwen2", "qwen3", "qwen3_5_text", "gemma3_text")
USE_FOLDER = "Set train.base to the model's safetensors folder instead."


def load_model(model: Model, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """The whole model (with vision parts where it has them) in evaluation mode, all weights frozen."""
    for folder in model.merged:
        if not os.path.isdir(folder):
            raise TrainerError("not_found", f"The adapter to merge is not there: {folder}.")
    network = load_base(model.base, dtype).to(device)
    config = network.config.get_text_config()
    if config.model_type not in FAMILIES:
        raise TrainerError(
            "invalid_input",
            f"The trainer does not know the architecture {config.model_type}; it knows {', '.join(FAMILIES)}.",
        )
    network.requires_grad_(False)
    for folder in model.merged:
        merge_adapter(network, folder)
    return network.eval()


def load_base(base: Base, dtype: torch.dtype) -> nn.Module:
    options: dict[str, Any] = {"dtype": dtype, "attn_implementation": "sdpa"}
    if base.kind == "folder":
        return load_config(base)[1].from_pretrained(base.path, **options)
    _check_file(base)
    folder, file = os.path.split(os.path.abspath(base.path))
    return transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, **options)


def load_config(base: Base) -> tuple[Any, Any]:
    """Configuration, and the class that loads the weights: the one a folder's configuration names, so that parameter
    names stay those of its files."""
    if base.kind == "gguf":
        _check_file(base)
        folder, file = os.path.split(os.path.abspath(base.path))
        return transformers.AutoConfig.from_pretrained(folder, gguf_file=file), transformers.AutoModelForCausalLM
    if not os.path.isdir(base.path):
        raise TrainerError("not_found", f"The base model's folder is not there: {base.path}.")
    try:
        config = transformers.AutoConfig.from_pretrained(base.path)
    except (OSError, ValueError) as error:
        raise TrainerError("invalid_input", f"No usable config.json in the model folder {base.path}.") from error
    names = config.architectures or []
    return config, getattr(transformers, names[0], None) if names else transformers.AutoModelForCausalLM


def _check_file(base: Base) -> None:
    if not os.path.isfile(base.path):
        raise TrainerError("not_found", f"The base model is not there: {base.path}.")
    refuse_inexact(GgufHeader(base.path))


def refuse_inexact(header: GgufHeader) -> None:
    """transformers reads some GGUFs into a model that computes something else, without a word. Refuses those by what
    their metadata says; the list is measured (next-token distributions against llama.cpp)."""
    architecture = header.architecture
    known = {"llama", "qwen2", "qwen3", "qwen35", "gemma3"}
    reason = None
    head = header.number(f"{architecture}.attention.key_length")
    width = header.number(f"{architecture}.embedding_length") or 0
    heads = header.number(f"{architecture}.attention.head_count") or 1
    scaling = header.text(f"{architecture}.rope.scaling.type")
    if architecture not in known:
        reason = f"its architecture {architecture} is not one of {', '.join(sorted(known))}"
    elif scaling not in (None, "none"):
        reason = f"its rotary scaling ({scaling}) would be lost"
    elif "rope_freqs.weight" in header.tensors:
        reason = "its scaled rotary frequencies (Llama 3) would be lost"
    elif header.number(f"{architecture}.expert_count"):
        reason = "it is a mixture of experts"
    elif architecture == "qwen3" and head != 128:
        reason = f"its head dimension is {head}, and only 128 is read rightly"
    elif architecture in ("llama", "qwen2") and head is not None and head * heads != width:
        reason = f"its head dimension {head} is not its width divided by its heads"
    elif architecture == "llama" and "blk.0.attn_q.bias" in header.tensors:
        reason = "its attention biases would be lost"
    elif architecture == "gemma3" and (head != 256 or header.number("gemma3.block_count") == 62):
        reason = "its attention scale is not that of head dimension 256"
    if reason:
        name = os.path.basename(header.path)
        raise TrainerError("invalid_input", f"Training cannot start from {name}: {reason}. {USE_FOLDER}")


def text_stack(network: nn.Module) -> nn.Module:
    """The part with `embed_tokens`, `layers` and `norm`, below any vision parts."""
    inner = network.model
    return getattr(inner, "language_model", inner)


def merge_adapter(network: nn.Module, folder: str) -> None:
    """W <- W + (alpha / rank) B A for every pair of a PEFT folder, computed in float32, kept in the weight's format.

    Raises TrainerError(invalid_input) for adapters that are more than plain pairs, or whose modules are not there."""
    config, tensors = read_adapter(folder)
    scale = config["lora_alpha"] / config["r"]
    modules = dict(network.named_modules())
    for name, (a, b) in adapter_pairs(tensors, folder).items():
        module = modules.get(name)
        weight = getattr(module, "weight", None)
        if weight is None or weight.shape != (b.shape[0], a.shape[1]):
            raise TrainerError("invalid_input", f"The adapter {folder} has a module {name} that the base has not.")
        with torch.no_grad():
            delta = (b.float() @ a.float()).mul_(scale).to(weight.device)
            weight.copy_((weight.float() + delta).to(weight.dtype))


def read_adapter(folder: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    from safetensors.torch import load_file

    try:
        with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        tensors = load_file(os.path.join(folder, "adapter_model.safetensors"))
    except Exception as error:  # safetensors raises its own kind
        raise TrainerError("invalid_input", f"The adapter folder {folder} cannot be read.") from error
    unusual = [key for key in ("use_dora", "use_rslora", "modules_to_save", "rank_pattern", "alpha_pattern") if config.get(key)]
    if unusual or config.get("bias", "none") != "none" or config.get("fan_in_fan_out"):
        raise TrainerError("invalid_input", f"The adapter {folder} uses {', '.join(unusual) or 'biases'}: only plain LoRA.")
    return config, tensors


def adapter_pairs(tensors: dict[str, torch.Tensor], folder: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Module path -> (A [rank, in], B [out, rank])."""
    prefix, pairs = "base_model.model.", {}
    for key in tensors:
        name, dot, rest = key.removeprefix(prefix).rpartition(".lora_A.")
        if not dot:
            if ".lora_B." not in key:
                raise TrainerError("invalid_input", f"The adapter {folder} holds {key}: only plain LoRA pairs.")
            continue
        other = key.replace(".lora_A.", ".lora_B.")
        if rest != "weight" or other not in tensors:
            raise TrainerError("invalid_input", f"The adapter {folder} has half a pair: {key}.")
        pairs[name] = (tensors[key], tensors[other])
    return pairs
