"""Reads a window set (main/common/domain/window-set.ts): tokens.u32, windows.jsonl, manifest.json."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .errors import TrainerError
from .objective import Example

ORCHESTRATOR = "orchestrator"
ROLES = (ORCHESTRATOR, "subagent", "auxiliary")


@dataclass(frozen=True)
class Window:
    index: int
    offset: int  # tokens from the start of tokens.u32
    length: int
    split: str
    task: str
    role: str
    labelled: tuple[tuple[int, int], ...]  # ranges of positions that carry loss, end exclusive

    @property
    def labels(self) -> int:
        return sum(end - start for start, end in self.labelled)


class WindowSet:
    """Checked once when opened: hashes, contiguity, label counts. Tokens stay on disk and are read by window."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        raw = self._read("manifest.json")
        self.sha256 = hashlib.sha256(raw).hexdigest()
        self.manifest: dict[str, Any] = self._json(raw, "manifest.json")
        if not isinstance(self.manifest, dict) or self.manifest.get("format") != 1:
            self._refuse("its format is not 1")
        hashes = self.manifest.get("files")
        if not isinstance(hashes, dict):
            self._refuse("its manifest names no files")
        for key, name in (("tokens", "tokens.u32"), ("windows", "windows.jsonl")):
            if _sha256(os.path.join(folder, name)) != hashes.get(key):
                self._refuse(f"{name} is not the file its manifest names")
        lines = self._read("windows.jsonl").splitlines()
        self.windows = [self._window(self._json(line, "windows.jsonl"), i) for i, line in enumerate(lines)]
        path = os.path.join(folder, "tokens.u32")
        if os.path.getsize(path) % 4:
            self._refuse("tokens.u32 ends within a token")
        self._tokens = np.memmap(path, dtype="<u4", mode="r") if os.path.getsize(path) else np.zeros(0, "<u4")
        self._check_layout()

    def split(self, name: str) -> list[Window]:
        return [window for window in self.windows if window.split == name]

    def example(self, window: Window) -> Example:
        tokens = self._tokens[window.offset : window.offset + window.length].astype(np.int64)
        labels = np.concatenate([np.arange(start, end) for start, end in window.labelled])
        return Example(torch.from_numpy(tokens), torch.from_numpy(labels))

    def largest_id(self) -> int:
        return int(self._tokens.max()) if len(self._tokens) else 0

    def _window(self, record: dict[str, Any], line: int) -> Window:
        try:
            blocks, end = record["blocks"], 0
            for block in blocks:
                if block["start"] != end:
                    self._refuse(f"window {line}: its blocks are not contiguous")
                end = block["end"]
            # The first token has nothing before it to be predicted from.
            labelled = tuple((max(b["start"], 1), b["end"]) for b in blocks if b["part"] == "loss" and b["end"] > 1)
            window = Window(
                record["index"], record["offset"], record["length"], record["split"], record["taskId"], record["role"], labelled
            )
            stated = record["labelledTokens"]
        except (KeyError, TypeError) as error:
            raise TrainerError("invalid_input", f"Window {line} of {self.folder} is not a window record.") from error
        counted = sum(b["end"] - b["start"] for b in blocks if b["part"] == "loss")
        if window.index != line or end != window.length or window.role not in ROLES or counted != stated:
            self._refuse(f"window {line}: index, length, role or label count is wrong")
        if not window.labels:
            self._refuse(f"window {line} has no token to train on")
        return window

    def _check_layout(self) -> None:
        offset = 0
        for window in self.windows:
            if window.offset != offset:
                self._refuse(f"window {window.index} does not begin where the one before ends")
            offset += window.length
        if offset != len(self._tokens):
            self._refuse(f"tokens.u32 holds {len(self._tokens)} tokens, its windows {offset}")
        if not self.split("train"):
            self._refuse("it has no window to train on")

    def _read(self, name: str) -> bytes:
        try:
            with open(os.path.join(self.folder, name), "rb") as file:
                return file.read()
        except OSError as error:
            raise TrainerError(
                "not_found", f"The window set {self.folder} has no readable {name}: render it again."
            ) from error

    def _json(self, raw: bytes, name: str) -> Any:
        try:
            return json.loads(raw)
        except ValueError as error:
            raise TrainerError("invalid_input", f"{name} of the window set {self.folder} is not JSON.") from error

    def _refuse(self, reason: str) -> None:
        raise TrainerError("invalid_input", f"The window set {self.folder} cannot be used: {reason}. Render it again.")


def _sha256(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TrainerError("not_found", f"{path} is not readable: render the windows again.") from error
