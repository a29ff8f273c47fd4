"""The order `merge`: base + adapters -> a Hugging Face folder of BF16 safetensors.

    W <- bf16(float32(W) + sum over adapters of (alpha / rank) B A)

rounded once. Matrices become BF16; vectors (norms, decay rates) keep their format. A folder's shards are gone through one
tensor at a time, under the names they have on disk, so that parts no loader knows (vision, multi-token prediction) are
kept and a shard is the most memory needed. A GGUF is dequantised as a whole.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import torch

from .adapters import Pair, concatenate, read_pairs
from .base import load_base
from .commands import Emit
from .control import Control
from .errors import TrainerError
from .files import folder_sha256, new_path
from .gguf_file import GgufHeader
from .machine import set_threads
from .protocol import MergeOrder

RECORD = "mass-merge.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
KEPT = (".json", ".txt", ".model", ".jinja")


def merge_command(order: MergeOrder, emit: Emit, control: Control) -> None:
    set_threads(order.machine)
    folders = [*order.model.merged, order.adapter]
    pairs = concatenate([read_pairs(folder) for folder in folders])
    base, tokenizer_pre = order.model.base, None
    with new_path(order.output) as temporary:
        os.mkdir(temporary)
        if base.kind == "folder":
            merge_folder(base.path, pairs, temporary, control)
        else:
            merge_gguf(order, pairs, temporary)
            tokenizer_pre = GgufHeader(base.path).text("tokenizer.ggml.pre")
        record = {"format": 1, "base": base.path, "adapters": folders, "tokenizerPre": tokenizer_pre}
        with open(os.path.join(temporary, RECORD), "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
    emit({"kind": "merged", "output": order.output, "sha256": folder_sha256(order.output)})


def read_record(folder: str) -> dict[str, Any]:
    """What `merge` noted in a folder it wrote; empty for other folders."""
    try:
        with open(os.path.join(folder, RECORD), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def plain_name(name: str) -> str:
    """A weight's name without the wrapper of models that see: the same whichever class loaded it."""
    return name.replace("language_model.", "").removeprefix("model.")


def merged_weight(weight: torch.Tensor, pair: Pair | None, name: str) -> torch.Tensor:
    if pair is not None:
        if weight.shape != (pair.b.shape[0], pair.a.shape[1]):
            raise TrainerError("invalid_input", f"The adapter's pair does not fit the base's weight {name}.")
        weight = weight.float() + pair.b @ pair.a
    return weight.to(torch.bfloat16) if weight.ndim > 1 and weight.is_floating_point() else weight


def merge_folder(source: str, pairs: dict[str, Pair], target: str, control: Control) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    left = {plain_name(f"{name}.weight"): pair for name, pair in pairs.items()}
    total = 0
    for shard in shard_names(source):
        with safe_open(os.path.join(source, shard), framework="pt") as file:
            tensors = {}
            for name in file.keys():
                control.check()
                tensors[name] = merged_weight(file.get_tensor(name), left.pop(plain_name(name), None), name)
                total += tensors[name].nbytes
            save_file(tensors, os.path.join(target, shard), metadata={"format": "pt"})
    if left:
        raise TrainerError("invalid_input", f"The adapter has a module that {source} has not: {next(iter(left))}.")
    for entry in os.scandir(source):
        if entry.is_file() and entry.name.endswith(KEPT) and entry.name not in (INDEX, RECORD):
            shutil.copyfile(entry.path, os.path.join(target, entry.name))
    if os.path.exists(os.path.join(source, INDEX)):
        edit_json(os.path.join(source, INDEX), os.path.join(target, INDEX), lambda d: d["metadata"].update(total_size=total))
    edit_json(os.path.join(source, "config.json"), os.path.join(target, "config.json"), name_bfloat16)


def shard_names(folder: str) -> list[str]:
    if os.path.exists(os.path.join(folder, INDEX)):
        with open(os.path.join(folder, INDEX), encoding="utf-8") as file:
            return sorted(set(json.load(file)["weight_map"].values()))
    if os.path.exists(os.path.join(folder, WEIGHTS)):
        return [WEIGHTS]
    raise TrainerError("not_found", f"There are no safetensors weights in {folder}.")


def name_bfloat16(config: dict[str, Any]) -> None:
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        for key in ("dtype", "torch_dtype"):
            if key in part:
                part[key] = "bfloat16"


def edit_json(source: str, target: str, edit: Any) -> None:
    with open(source, encoding="utf-8") as file:
        data = json.load(file)
    edit(data)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2)


def merge_gguf(order: MergeOrder, pairs: dict[str, Pair], target: str) -> None:
    import transformers

    network = load_base(order.model.base, torch.float32)
    modules = dict(network.named_modules())
    missing = [name for name in pairs if getattr(modules.get(name), "weight", None) is None]
    if missing:
        raise TrainerError("invalid_input", f"The adapter has a module that the base has not: {missing[0]}.")
    with torch.no_grad():
        for name, module in modules.items():
            for key, weight in module.named_parameters(recurse=False):
                weight.data = merged_weight(weight.data, pairs.get(name) if key == "weight" else None, name)
    # Read from a GGUF, it still counts as quantised, and quantised models are not saved.
    network.hf_quantizer = None
    network.config.__dict__.pop("quantization_config", None)
    network.config.architectures = [type(network).__name__]
    network.save_pretrained(target)
    edit_json(*[os.path.join(target, "config.json")] * 2, name_bfloat16)
    folder, file = os.path.split(os.path.abspath(order.model.base.path))
    transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(target)
