"""Writes small window sets for tests and benchmarks."""

from __future__ import annotations

import hashlib
import json
import os
import random
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Draft:
    """One window: its ids, and the ranges of positions that carry loss."""

    ids: list[int]
    loss: list[tuple[int, int]]
    task: str = "task-1"
    role: str = "orchestrator"
    split: str = "train"


def write_window_set(folder: str, drafts: list[Draft]) -> str:
    os.makedirs(folder, exist_ok=True)
    records, offset = [], 0
    for index, draft in enumerate(drafts):
        records.append(_record(index, offset, draft))
        offset += len(draft.ids)
    tokens = np.array([token for draft in drafts for token in draft.ids], dtype="<u4").tobytes()
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    manifest = {
        "format": 1,
        "windowTokens": max((len(d.ids) for d in drafts), default=0),
        "overlapTokens": 0,
        "modelSha256": "0" * 64,
        "vocabularySha256": "0" * 64,
        "files": {"tokens": hashlib.sha256(tokens).hexdigest(), "windows": hashlib.sha256(lines).hexdigest()},
        "total": {"windows": len(drafts), "tokens": offset, "labelledTokens": sum(r["labelledTokens"] for r in records)},
        "bySplit": {},
        "byTask": {},
        "episodes": [],
    }
    for name, data in (("tokens.u32", tokens), ("windows.jsonl", lines), ("manifest.json", json.dumps(manifest).encode())):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    return folder


def _record(index: int, offset: int, draft: Draft) -> dict[str, object]:
    blocks, end = [], 0
    for start, stop in draft.loss:
        if start > end:
            blocks.append({"start": end, "end": start, "part": "context" if blocks else "header", "completionId": None})
        blocks.append({"start": start, "end": stop, "part": "loss", "completionId": f"c{index}-{start}"})
        end = stop
    if end < len(draft.ids):
        blocks.append({"start": end, "end": len(draft.ids), "part": "context", "completionId": None})
    return {
        "index": index,
        "offset": offset,
        "length": len(draft.ids),
        "split": draft.split,
        "taskId": draft.task,
        "role": draft.role,
        "episodeId": f"episode-{draft.task}-{draft.split}",
        "threadId": f"thread-{index}",
        "blocks": blocks,
        "labelledTokens": sum(stop - start for start, stop in draft.loss),
    }


def random_drafts(lengths: list[int], vocabulary: int, *, seed: int = 5, share: float = 0.3, validate: int = 1) -> list[Draft]:
    """Windows of random ids with about `share` of them labelled, in runs; tasks and roles take turns; the last
    `validate` windows validate. Ids are drawn from a few, so that there is something to learn."""
    generator = random.Random(seed)
    drafts = []
    for index, length in enumerate(lengths):
        ids = [generator.randrange(5, min(vocabulary, 45)) for _ in range(length)]
        runs, start = [], length // 8 + 1
        while start < length:
            stop = min(length, start + max(1, int(share * 64)))
            runs.append((start, stop))
            start += 64
        drafts.append(
            Draft(
                ids,
                runs,
                task=f"task-{index % 3}",
                role=("orchestrator", "subagent", "auxiliary")[index % 4 % 3],
                split="validate" if index >= len(lengths) - validate else "train",
            )
        )
    return drafts
