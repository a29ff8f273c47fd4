"""PEFT adapters as plain pairs of matrices, and several of them as one."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import torch

from .base import adapter_pairs, read_adapter
from .errors import TrainerError

F16_MAX = 65504.0


@dataclass(frozen=True)
class Pair:
    """One adapted module: W + B A. The scaling alpha / rank is already in `b`."""

    a: torch.Tensor  # [rank, in], float32
    b: torch.Tensor  # [out, rank], float32


def read_pairs(folder: str) -> dict[str, Pair]:
    """Module path -> pair. Raises TrainerError(invalid_input) for anything but plain, finite LoRA pairs."""
    if not os.path.isdir(folder):
        raise TrainerError("not_found", f"The adapter is not there: {folder}.")
    config, tensors = read_adapter(folder)
    pairs = {}
    for name, (a, b) in adapter_pairs(tensors, folder).items():
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1]:
            raise TrainerError("invalid_input", f"The adapter {folder} has a pair at {name} whose shapes do not fit.")
        if not (torch.isfinite(a).all() and torch.isfinite(b).all()):
            raise TrainerError("invalid_input", f"The adapter {folder} holds numbers that are not finite at {name}.")
        pairs[name] = Pair(a.float(), b.float() * (config["lora_alpha"] / config["r"]))
    if not pairs:
        raise TrainerError("invalid_input", f"The adapter {folder} adapts nothing.")
    return pairs


def concatenate(adapters: list[dict[str, Pair]]) -> dict[str, Pair]:
    """One adapter that does what all do together: B1 A1 + B2 A2 = [B1 B2] [A1; A2]. Modules may differ between them."""
    out: dict[str, list[Pair]] = {}
    for pairs in adapters:
        for name, pair in pairs.items():
            out.setdefault(name, []).append(pair)
    for name, parts in out.items():
        if len({(part.a.shape[1], part.b.shape[0]) for part in parts}) > 1:
            raise TrainerError("invalid_input", f"The adapters to combine have different shapes at {name}.")
    return {
        name: Pair(torch.cat([p.a for p in parts], dim=0), torch.cat([p.b for p in parts], dim=1))
        for name, parts in out.items()
    }


def write_combined(pairs: dict[str, Pair], folder: str) -> int:
    """Writes `pairs` as a PEFT folder and returns its rank R, the highest of any module.

    PEFT and llama.cpp both multiply a module's B A by alpha / r with r its own rank. With alpha = R that is 1 where r = R;
    a module of lower rank has B multiplied by r / R beforehand.
    """
    from safetensors.torch import save_file

    rank = max(pair.a.shape[0] for pair in pairs.values())
    tensors = {}
    for name, pair in sorted(pairs.items()):
        own = pair.a.shape[0]
        tensors[f"base_model.model.{name}.lora_A.weight"] = pair.a.contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = (pair.b * (own / rank)).contiguous()
    largest = max(float(tensor.abs().max()) for tensor in tensors.values())
    if largest > F16_MAX:
        raise TrainerError("invalid_input", f"The adapter holds {largest:g}, more than a 16-bit float can: it diverged.")
    os.makedirs(folder)
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"), metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "inference_mode": True,
        "base_model_name_or_path": None,
        # whole names, not endings: a model may have parts of the same name that are not adapted
        "target_modules": "|".join(name.replace(".", r"\.") for name in sorted(pairs)),
        "rank_pattern": {name: p.a.shape[0] for name, p in sorted(pairs.items()) if p.a.shape[0] != rank},
    }
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    return rank
