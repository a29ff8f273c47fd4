"""Checkpoints: a PEFT adapter, the optimizer, every generator's state and the sampler's position, written atomically.

<output>/step-000050/
    adapter_config.json, adapter_model.safetensors    what peft loads
    optimizer.safetensors                             Adam's moments and the generators' states
    checkpoint.json                                   metadata with the other files' hashes, written last

The folder is written under a temporary name, every file and the folder are flushed to disk, and it is renamed into
place: a checkpoint is whole or not there. Only the newest two keep optimizer.safetensors, which is twice the adapter.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
import torch

from .errors import TrainerError
from .lora import LoraLinear
from .protocol import Recipe
from .targets import leaf_names

ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"
OPTIMIZER, METADATA = "optimizer.safetensors", "checkpoint.json"
KEPT_OPTIMIZERS = 2
FORMAT = 1
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Saved:
    folder: str
    size: int  # bytes
    adapter_sha256: str


def adapter_tensors(adapters: dict[str, LoraLinear]) -> Tensors:
    tensors: Tensors = {}
    for name, adapter in adapters.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = adapter.lora_a.detach()
        tensors[f"base_model.model.{name}.lora_B.weight"] = adapter.lora_b.detach()
    return tensors


def adapter_config(adapters: dict[str, LoraLinear], recipe: Recipe, base: str) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": recipe.rank,
        "lora_alpha": recipe.alpha,
        "lora_dropout": recipe.dropout,
        "target_modules": leaf_names(adapters),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "use_rslora": False,
        "use_dora": False,
    }


def optimizer_tensors(adapters: dict[str, LoraLinear], optimizer: torch.optim.Optimizer) -> Tensors:
    tensors: Tensors = {}
    for name, parameter in named_parameters(adapters):
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = value.detach()
    return tensors


def named_parameters(adapters: dict[str, LoraLinear]) -> list[tuple[str, torch.nn.Parameter]]:
    return [(f"{name}.{part}", getattr(a, part)) for name, a in adapters.items() for part in ("lora_a", "lora_b")]


def generator_tensors() -> Tensors:
    states = {"random.torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["random.cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        states["random.mps"] = torch.mps.get_rng_state()
    return states


def save(
    output: str,
    adapters: dict[str, LoraLinear],
    optimizer: torch.optim.Optimizer,
    recipe: Recipe,
    metadata: dict[str, Any],
) -> Saved:
    """`metadata` needs `step`, `orderSha256` and `base`; whatever else it holds comes back on resume.
    Raises OSError (disk full, ...) and then leaves earlier checkpoints and no trace of its own."""
    tensors = adapter_tensors(adapters)
    broken = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if broken:
        raise TrainerError("internal", f"No checkpoint is written: {broken[0]} is not finite.")
    step = metadata["step"]
    partial, final = os.path.join(output, f".step-{step:06d}.partial"), folder_of(output, step)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        os.makedirs(partial)
        config = adapter_config(adapters, recipe, metadata["base"])
        files = {
            CONFIG: _write(os.path.join(partial, CONFIG), lambda put: put(_json(config))),
            ADAPTER: _write(os.path.join(partial, ADAPTER), lambda put: write_safetensors(put, tensors)),
        }
        state = {**optimizer_tensors(adapters, optimizer), **generator_tensors()}
        files[OPTIMIZER] = _write(os.path.join(partial, OPTIMIZER), lambda put: write_safetensors(put, state))
        python, numpy_state = random.getstate(), np.random.get_state(legacy=False)
        body = {
            "format": FORMAT,
            **metadata,
            "pythonRandom": [python[0], list(python[1]), python[2]],
            "numpyRandom": json.loads(json.dumps(numpy_state, default=lambda array: array.tolist())),
            "files": files,
        }
        _write(os.path.join(partial, METADATA), lambda put: put(_json(body)))
        _sync_folder(partial)
        _replace(partial, final)
        _sync_folder(output)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _drop_old_optimizers(output, step)
    size = sum(entry.stat().st_size for entry in os.scandir(final))
    return Saved(final, size, files[ADAPTER])


def newest(output: str, order_sha256: str, log: Callable[[str], None]) -> dict[str, Any] | None:
    """Metadata of the newest complete checkpoint of this order, or None. Unfinished folders are removed; damaged
    checkpoints are passed over, and said so. Raises TrainerError(conflict) when one belongs to another order: its steps
    would be overwritten one by one."""
    for name in os.listdir(output) if os.path.isdir(output) else []:
        if name.startswith(".step-"):
            shutil.rmtree(os.path.join(output, name), ignore_errors=True)
    for step in sorted(steps(output), reverse=True):
        folder = folder_of(output, step)
        metadata = read_metadata(folder)
        if metadata is None:
            log(f"{folder} is passed over: its checkpoint.json cannot be read.")
        elif metadata["orderSha256"] != order_sha256:
            raise TrainerError(
                "conflict",
                f"{folder} belongs to another order (model, windows or recipe differ) and is never overwritten: "
                "choose another output folder.",
            )
        elif OPTIMIZER not in os.listdir(folder):
            log(f"{folder} is passed over: it keeps no optimizer state.")
        elif any(_hash(os.path.join(folder, name)) != sha for name, sha in metadata["files"].items()):
            log(f"{folder} is passed over: a file of it is damaged.")
        else:
            return metadata
    return None


def restore(
    folder: str, adapters: dict[str, LoraLinear], optimizer: torch.optim.Optimizer, metadata: dict[str, Any]
) -> None:
    from safetensors.torch import load_file

    weights = load_file(os.path.join(folder, ADAPTER))
    own = adapter_tensors(adapters)
    if own.keys() != weights.keys():
        raise TrainerError("invalid_input", f"{folder} adapts other modules than this model has.")
    with torch.no_grad():
        for key, tensor in own.items():
            tensor.copy_(weights[key])
    state = load_file(os.path.join(folder, OPTIMIZER))
    for name, parameter in named_parameters(adapters):
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if (value := state.get(f"optimizer.{key}.{name}")) is not None:
                optimizer.state[parameter][key] = value.to(parameter.device) if key != "step" else value
    torch.set_rng_state(state["random.torch"])
    if "random.cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["random.cuda"])
    if "random.mps" in state and torch.backends.mps.is_available():
        torch.mps.set_rng_state(state["random.mps"])
    version, internal, gauss = metadata["pythonRandom"]
    random.setstate((version, tuple(internal), gauss))
    numpy_state = metadata["numpyRandom"]
    numpy_state["state"]["key"] = np.array(numpy_state["state"]["key"], dtype=np.uint32)
    np.random.set_state(numpy_state)


def folder_of(output: str, step: int) -> str:
    return os.path.join(output, f"step-{step:06d}")


def steps(output: str) -> list[int]:
    names = os.listdir(output) if os.path.isdir(output) else []
    return [int(match[1]) for name in names if (match := re.fullmatch(r"step-(\d{6,})", name))]


def read_metadata(folder: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, METADATA), encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError):
        return None
    needed = {"format", "step", "orderSha256", "files"}
    return data if isinstance(data, dict) and needed <= data.keys() and data["format"] == FORMAT else None


_TYPES = {torch.float32: "F32", torch.uint8: "U8", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64"}


def write_safetensors(put: Callable[[bytes], None], tensors: Tensors) -> None:
    """The safetensors format, streamed tensor by tensor: the library's own writer holds a second copy of everything
    and hides a full disk behind an error of its own kind."""
    header, offset = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    put(len(head).to_bytes(8, "little") + head)
    for tensor in tensors.values():
        put(tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())


def _write(path: str, fill: Callable[[Callable[[bytes], None]], None]) -> str:
    """Writes, flushes to disk, and returns the sha256 of what was written."""
    digest = hashlib.sha256()
    with open(path, "wb", buffering=0) as file:

        def put(data: bytes) -> None:
            digest.update(data)
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]

        fill(put)
        os.fsync(file.fileno())
    return digest.hexdigest()


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def _hash(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _sync_folder(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(partial: str, final: str) -> None:
    """A folder cannot be renamed over a full one: what was there goes aside first."""
    if os.path.isdir(final):
        old = f"{partial}.old"
        shutil.rmtree(old, ignore_errors=True)
        os.rename(final, old)
        os.rename(partial, final)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.rename(partial, final)


def _drop_old_optimizers(output: str, step: int) -> None:
    for old in sorted(s for s in steps(output) if s <= step)[:-KEPT_OPTIMIZERS]:
        try:
            os.remove(os.path.join(folder_of(output, old), OPTIMIZER))
        except FileNotFoundError:
            pass
