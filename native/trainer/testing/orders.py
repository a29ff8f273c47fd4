"""Orders of small trainings, as they arrive on the wire."""

from __future__ import annotations

import json
from typing import Any

from ..protocol import TrainOrder, parse

RECIPE: dict[str, Any] = {
    "rank": 4,
    "alpha": 8,
    "dropout": 0.05,
    "steps": 6,
    "windowsPerStep": 2,
    "learningRate": 2e-3,
    "warmupSteps": 2,
    "finalShare": 0.1,
    "betas": [0.9, 0.95],
    "weightDecay": 0,
    "gradNorm": 1,
    "orchestratorShare": 1 / 3,
    "checkpointEvery": 2,
    "validateEvery": 2,
    "patience": 0,
    "lossChunk": 16,
    "seed": 7,
}


def wire_order(model: str, served: str, windows: str, output: str, **recipe: Any) -> dict[str, Any]:
    """`model`: a folder, or a .gguf file; `recipe`: changes to RECIPE, by their names on the wire."""
    kind = "gguf" if model.endswith(".gguf") else "folder"
    return {
        "model": {"base": {"kind": kind, "path": model}, "merged": []},
        "servedGguf": served,
        "windows": windows,
        "output": output,
        "recipe": {**RECIPE, **recipe},
        "machine": {"device": "cpu", "threads": 1, "allowSlowKernels": True},
    }


def parsed(wire: dict[str, Any]) -> TrainOrder:
    return parse(TrainOrder, json.loads(json.dumps(wire)), "order")
