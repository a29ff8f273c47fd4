"""Compares rows of the embedding table of two models: equal tables of tokens prove nothing about the weights' order."""

from __future__ import annotations

import json
import os
from typing import Any, Callable

import gguf
import numpy as np
import torch

from .errors import TrainerError
from .gguf_file import GgufHeader
from .protocol import Base

Log = Callable[..., None]
TABLE = "token_embd.weight"
SAMPLES = 256  # rows, spread over the table, and as many of special tokens
ALIKE = 0.9  # cosine; four-bit formats stay above 0.98, rows of different tokens near 0


def compare_embeddings(base: Base, served: GgufHeader, ids: tuple[list[int], list[int]], log: Log) -> None:
    """`ids`: of special tokens and of all that mean something, ascending. Raises TrainerError(invalid_input) that names
    the first unlike row."""
    sampled = sorted({token for group in ids for token in _spread(group)})
    theirs = read_gguf_rows(served, sampled)
    own = read_gguf_rows(GgufHeader(base.path), sampled) if base.kind == "gguf" else read_folder_rows(base.path, sampled)
    if own is None or theirs is None:
        log("info", "Embeddings are not compared: one of the two tables is in a format that cannot be read here.")
        return
    if own.shape != theirs.shape:
        raise TrainerError(
            "invalid_input",
            f"The base's embeddings are {own.shape[1]} wide, the served model's {theirs.shape[1]}: they are different models.",
        )
    for token, mine, other in zip(sampled, own, theirs):
        cosine = _cosine(mine, other)
        if not cosine >= ALIKE:  # NaN is unlike
            raise TrainerError(
                "invalid_input",
                f"The embedding of id {token} is not the served model's (cosine {cosine:.2f}): "
                "give train.base the folder of the model that is served.",
                {"id": token},
            )


def _spread(ids: list[int]) -> list[int]:
    """At most SAMPLES of them at even distances, first and last among them."""
    count = min(SAMPLES, len(ids))
    return [ids[round(i * (len(ids) - 1) / max(1, count - 1))] for i in range(count)]


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Rows of padding are zero on both sides, and then alike."""
    if not a.any() and not b.any():
        return 1.0
    norms = float(np.linalg.norm(a.astype(np.float64)) * np.linalg.norm(b.astype(np.float64)))
    return float(a.astype(np.float64) @ b) / norms if norms != 0 else 0.0


def read_gguf_rows(header: GgufHeader, ids: list[int]) -> np.ndarray | None:
    """[ids, width] float32, or None when the table's number format is not known."""
    if TABLE not in header.tensors:
        return None
    kind, start = header.places[TABLE]
    width = header.tensors[TABLE][1]
    try:
        number = gguf.GGMLQuantizationType(kind)
        block, size = gguf.GGML_QUANT_SIZES[number]
        row = width // block * size
        with open(header.path, "rb") as file:
            data = np.stack([_read_row(file, start + i * row, row) for i in ids])
        return gguf.quants.dequantize(data, number).astype(np.float32)
    except (NotImplementedError, ValueError, KeyError):
        return None


def _read_row(file: Any, start: int, size: int) -> np.ndarray:
    file.seek(start)
    return np.frombuffer(file.read(size), dtype=np.uint8)


def read_folder_rows(folder: str, ids: list[int]) -> np.ndarray | None:
    """[ids, width] float32 from a folder's safetensors, or None when it has no table under a known name."""
    from safetensors import safe_open

    for path in _tensor_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                if name.endswith("embed_tokens.weight"):
                    table = file.get_slice(name)
                    return torch.cat([table[i : i + 1] for i in ids]).float().numpy()
    return None


def _tensor_files(folder: str) -> list[str]:
    try:
        with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as file:
            places: dict[str, str] = json.load(file)["weight_map"]
        names = {name for tensor, name in places.items() if tensor.endswith("embed_tokens.weight")}
    except (OSError, ValueError, KeyError):
        names = {"model.safetensors"}
    paths = [os.path.join(folder, name) for name in sorted(names)]
    return [path for path in paths if os.path.isfile(path)]
