"""Which windows a step trains: task uniform, then role, then window uniform, with replacement."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from .windows import ORCHESTRATOR, Window


class Sampler:
    """Every draw takes three random numbers, whatever it meets, so that the position is a count."""

    def __init__(self, windows: list[Window], orchestrator_share: float, seed: int) -> None:
        self._share = orchestrator_share
        self._random = random.Random(seed)
        self.drawn = 0
        self.exposure: Counter[str] = Counter()  # "task/role" -> windows drawn
        self._tasks = sorted({window.task for window in windows})
        self._pools: dict[tuple[str, bool], list[Window]] = {}
        for window in windows:
            self._pools.setdefault((window.task, window.role == ORCHESTRATOR), []).append(window)

    def draw(self) -> Window:
        task = self._tasks[self._pick(len(self._tasks))]
        orchestrator = self._random.random() < self._share
        # A task without windows of the wanted side gives one of the other.
        pool = self._pools.get((task, orchestrator)) or self._pools[(task, not orchestrator)]
        window = pool[self._pick(len(pool))]
        self.drawn += 1
        self.exposure[f"{window.task}/{window.role}"] += 1
        return window

    def _pick(self, count: int) -> int:
        return min(int(self._random.random() * count), count - 1)

    def probabilities(self) -> dict[int, float]:
        """Window index -> chance of being the next draw."""
        chances: dict[int, float] = {}
        for task in self._tasks:
            for orchestrator, share in ((True, self._share), (False, 1 - self._share)):
                pool = self._pools.get((task, orchestrator)) or self._pools[(task, not orchestrator)]
                for window in pool:
                    chances[window.index] = chances.get(window.index, 0.0) + share / len(self._tasks) / len(pool)
        return chances

    def state(self) -> dict[str, Any]:
        version, internal, gauss = self._random.getstate()
        return {
            "random": [version, list(internal), gauss],
            "drawn": self.drawn,
            "exposure": dict(sorted(self.exposure.items())),
        }

    def restore(self, state: dict[str, Any]) -> None:
        version, internal, gauss = state["random"]
        self._random.setstate((version, tuple(internal), gauss))
        self.drawn, self.exposure = state["drawn"], Counter(state["exposure"])
