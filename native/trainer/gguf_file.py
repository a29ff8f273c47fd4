"""What a GGUF says about itself: metadata and tensor shapes, without its weights."""

from __future__ import annotations

import os
from typing import Any

from gguf import GGUFReader, GGUFValueType

from .errors import TrainerError


class GgufHeader:
    """`tensors`: name -> shape as (rows, columns), row-major like torch's."""

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.isfile(path):
            raise TrainerError("not_found", f"The model file is not there: {path}.")
        try:
            reader = GGUFReader(path, "r")
        except Exception as error:  # the reader raises whatever its numpy views raise
            raise TrainerError("invalid_input", f"{path} is not a readable GGUF file.") from error
        self._fields = reader.fields
        self.tensors = {t.name: tuple(int(n) for n in reversed(t.shape)) for t in reader.tensors}

    @property
    def architecture(self) -> str:
        return self.text("general.architecture") or "unknown"

    def value(self, key: str) -> Any:
        field = self._fields.get(key)
        return None if field is None else field.contents()

    def text(self, key: str) -> str | None:
        field = self._fields.get(key)
        return str(field.contents()) if field is not None and field.types[0] == GGUFValueType.STRING else None

    def number(self, key: str) -> int | None:
        value = self.value(key)
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    def strings(self, key: str) -> list[str]:
        return list(self.value(key) or [])
