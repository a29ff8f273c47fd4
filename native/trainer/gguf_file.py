"""What a GGUF says about itself: metadata and tensor shapes, without its weights.

Read by hand (github.com/ggml-org/ggml, docs/gguf.md): the gguf package makes several numpy arrays for every string, a
minute for a vocabulary of 248k tokens with its merges.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any

from .errors import TrainerError

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9


class GgufHeader:
    """`tensors`: name -> shape as (rows, columns), row-major like torch's. `places`: name -> number format (ggml's
    enumeration) and the position of its first byte in the file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._values: dict[str, Any] = {}
        self.tensors: dict[str, tuple[int, ...]] = {}
        self.places: dict[str, tuple[int, int]] = {}
        if not os.path.isfile(path):
            raise TrainerError("not_found", f"The model file is not there: {path}.")
        try:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._read(data)
        except (ValueError, struct.error, KeyError, UnicodeDecodeError, OverflowError) as error:
            raise TrainerError("invalid_input", f"{path} is not a readable GGUF file.") from error

    def _read(self, data: mmap.mmap) -> None:
        magic, version, tensors, values = struct.unpack_from("<4sIQQ", data, 0)
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(f"magic {magic!r}, version {version}")
        cursor = 24
        for _ in range(values):
            key, cursor = _string(data, cursor)
            kind, cursor = _scalar(data, cursor, "<I")
            self._values[key], cursor = _value(data, cursor, kind)
        for _ in range(tensors):
            name, cursor = _string(data, cursor)
            dimensions, cursor = _scalar(data, cursor, "<I")
            shape = struct.unpack_from(f"<{dimensions}Q", data, cursor)
            self.places[name] = struct.unpack_from("<IQ", data, cursor + 8 * dimensions)
            cursor += 8 * dimensions + 4 + 8
            self.tensors[name] = tuple(reversed(shape))
        alignment = self.number("general.alignment") or 32
        start = -(-cursor // alignment) * alignment
        self.places = {name: (kind, start + offset) for name, (kind, offset) in self.places.items()}

    @property
    def architecture(self) -> str:
        return self.text("general.architecture") or "unknown"

    def value(self, key: str) -> Any:
        return self._values.get(key)

    def text(self, key: str) -> str | None:
        value = self._values.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        value = self._values.get(key)
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def strings(self, key: str) -> list[str]:
        return list(self._values.get(key) or [])


def _scalar(data: mmap.mmap, cursor: int, form: str) -> tuple[Any, int]:
    return struct.unpack_from(form, data, cursor)[0], cursor + struct.calcsize(form)


def _string(data: mmap.mmap, cursor: int) -> tuple[str, int]:
    size, start = _scalar(data, cursor, "<Q")
    if start + size > len(data):
        raise ValueError("a text runs past the end of the file")
    # Vocabularies may hold pieces of characters; they must stay different from one another.
    return data[start : start + size].decode("utf-8", "surrogateescape"), start + size


def _value(data: mmap.mmap, cursor: int, kind: int) -> tuple[Any, int]:
    if kind == _STRING:
        return _string(data, cursor)
    if kind != _ARRAY:
        return _scalar(data, cursor, _SCALARS[kind])
    inner, cursor = _scalar(data, cursor, "<I")
    count, cursor = _scalar(data, cursor, "<Q")
    if inner in _SCALARS:
        form = f"<{count}{_SCALARS[inner][1]}"
        return list(struct.unpack_from(form, data, cursor)), cursor + struct.calcsize(form)
    items = []
    for _ in range(count):
        item, cursor = _value(data, cursor, inner)
        items.append(item)
    return items, cursor
