"""The commands of main/common/protocol/trainer.ts as dataclasses, and the check of what arrives against them.

Field names are camelCase on the wire and snake_case here. A test compares these classes with
resources/trainer/protocol.schema.json, which is generated from the TypeScript side.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import TrainerError

PROTOCOL = 1
MAX_LINE_BYTES = 64 * 1024 * 1024  # prompts of a score order are the longest thing that arrives


def bounded(low: float, high: float = math.inf, *, above: bool = False) -> Any:
    """A number between `low` and `high`, both allowed; `above`: strictly greater than `low`."""
    return field(metadata={"low": low, "high": high, "above": above})


@dataclass(frozen=True)
class Base:
    """kind `folder`: a Hugging Face folder of safetensors; `gguf`: a file, where reading it is exact."""

    kind: Literal["folder", "gguf"]
    path: str


@dataclass(frozen=True)
class Model:
    base: Base
    merged: list[str]  # PEFT folders merged into the base, oldest first


@dataclass(frozen=True)
class Recipe:
    rank: int = bounded(1)
    alpha: float = bounded(0, above=True)
    dropout: float = bounded(0, 0.9)
    steps: int = bounded(1)
    windows_per_step: int = bounded(1)
    learning_rate: float = bounded(0, above=True)
    warmup_steps: int = bounded(0)
    final_share: float = bounded(0, 1)
    betas: tuple[float, float]
    weight_decay: float = bounded(0)
    grad_norm: float = bounded(0, above=True)
    orchestrator_share: float = bounded(0, 1)
    checkpoint_every: int = bounded(1)
    validate_every: int = bounded(1)
    patience: int = bounded(0)
    loss_chunk: int = bounded(1)
    seed: int


@dataclass(frozen=True)
class Machine:
    device: Literal["auto", "cpu", "cuda", "mps"]
    threads: int = bounded(0)
    allow_slow_kernels: bool


@dataclass(frozen=True)
class TrainOrder:
    model: Model
    served_gguf: str
    windows: str
    output: str
    recipe: Recipe
    machine: Machine


@dataclass(frozen=True)
class ScoreOrder:
    model: Model
    adapter: str | None
    prompts: list[list[int]]
    last_positions: int = bounded(1)
    output: str
    machine: Machine


@dataclass(frozen=True)
class MergeOrder:
    model: Model
    adapter: str
    output: str
    machine: Machine


@dataclass(frozen=True)
class ConvertOrder:
    model: Model
    adapters: list[str]
    output: str
    type: Literal["f16", "f32"]
    llama_cpp: str  # folder of llama.cpp's sources, whose conversion scripts are run


@dataclass(frozen=True)
class ConvertModelOrder:
    folder: str
    output: str
    type: Literal["bf16", "f16", "q8_0", "f32"]
    llama_cpp: str


ORDERS: dict[str, type] = {
    "plan": TrainOrder,
    "start": TrainOrder,
    "score": ScoreOrder,
    "merge": MergeOrder,
    "convert": ConvertOrder,
    "convert-model": ConvertModelOrder,
}
CONTROLS = ("pause", "resume", "stop-after-step", "stop-now")


@dataclass(frozen=True)
class Command:
    kind: str
    order: Any = None


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


def parse_line(line: bytes | str) -> Command:
    """One line of standard input. Raises TrainerError(invalid_input) that names the first wrong field."""
    if len(line) > MAX_LINE_BYTES:
        raise TrainerError("invalid_input", f"A command line may hold {MAX_LINE_BYTES} bytes; this one is longer.")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:  # the latter: a hundred thousand brackets
        raise TrainerError("invalid_input", "A command line must be one JSON object; this line is not JSON.") from error
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
        raise TrainerError("invalid_input", 'A command line must be a JSON object with a text field "kind".')
    kind = data["kind"]
    if kind in CONTROLS:
        return Command(kind)
    if kind not in ORDERS:
        known = ", ".join([*ORDERS, *CONTROLS])
        raise TrainerError("invalid_input", f"Unknown command {kind[:80]!r}: send one of {known}.")
    return Command(kind, parse(ORDERS[kind], data.get("order"), f"{kind}.order"))


def parse(shape: Any, data: Any, where: str = "value") -> Any:
    """`data` as an instance of `shape` (dataclass, Literal, list, tuple, union with None, str, int, float, bool)."""
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if dataclasses.is_dataclass(shape):
        return _parse_object(shape, data, where)
    if origin is Literal:
        return data if data in arguments else _refuse(where, f"one of {', '.join(map(str, arguments))}", data)
    if origin in (typing.Union, types.UnionType):
        return None if data is None else parse(arguments[0], data, where)
    if origin is list:
        if not isinstance(data, list):
            _refuse(where, "a list", data)
        return [parse(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(data)]
    if origin is tuple:
        if not isinstance(data, list) or len(data) != len(arguments):
            _refuse(where, f"a list of {len(arguments)}", data)
        return tuple(parse(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(arguments, data)))
    return _parse_scalar(shape, data, where)


def _parse_scalar(shape: Any, data: Any, where: str) -> Any:
    if shape is str:
        return data if isinstance(data, str) else _refuse(where, "text", data)
    if shape is bool:
        return data if isinstance(data, bool) else _refuse(where, "true or false", data)
    number = isinstance(data, (int, float)) and not isinstance(data, bool) and math.isfinite(data)
    if shape is int:
        return int(data) if number and data == int(data) else _refuse(where, "a whole number", data)
    if shape is float:
        return float(data) if number else _refuse(where, "a finite number", data)
    raise TypeError(f"{where}: no check for {shape}")


def _parse_object(shape: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        _refuse(where, "an object", data)
    hints, values = typing.get_type_hints(shape), {}
    for entry in dataclasses.fields(shape):
        name = camel(entry.name)
        if name not in data:
            raise TrainerError("invalid_input", f"{where}.{name} is missing from the command.")
        value = values[entry.name] = parse(hints[entry.name], data[name], f"{where}.{name}")
        limits = entry.metadata
        if limits and not (limits["low"] <= value <= limits["high"] and (value != limits["low"] or not limits["above"])):
            _refuse(f"{where}.{name}", describe_limits(limits), value)
    return shape(**values)


def describe_limits(limits: typing.Mapping[str, Any]) -> str:
    low = f"above {limits['low']}" if limits["above"] else f"at least {limits['low']}"
    return low if limits["high"] == math.inf else f"{low} and at most {limits['high']}"


def _refuse(where: str, wanted: str, got: Any) -> Any:
    shown = re.sub(r"\s+", " ", json.dumps(got, default=str))[:80]
    raise TrainerError("invalid_input", f"{where} must be {wanted}, not {shown}.")


def to_wire(value: Any) -> Any:
    """A dataclass as plain JSON data with the wire's field names; the inverse of `parse`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {camel(f.name): to_wire(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_wire(item) for item in value]
    return value
