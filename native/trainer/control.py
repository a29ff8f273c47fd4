"""What a person or the engine asks of a running order: pause, go on, stop."""

from __future__ import annotations

import threading

from .errors import TrainerError


class Control:
    """Written by the thread that reads commands, read by the thread that trains."""

    def __init__(self) -> None:
        self._running = threading.Event()
        self._running.set()
        self.stop_after_step = False
        self.stop_now = False
        self.ended = False  # the order is over: controls are for others

    def apply(self, kind: str) -> None:
        if kind == "pause":
            self._running.clear()
        elif kind == "resume":
            self._running.set()
        elif kind == "stop-after-step":
            self.stop_after_step = True
            self._running.set()
        elif kind == "stop-now":
            self.stop_now = True
            self._running.set()

    @property
    def paused(self) -> bool:
        return not self._running.is_set()

    def wait_while_paused(self) -> None:
        self._running.wait()

    def check(self) -> None:
        """Called often inside long work. Raises TrainerError(cancelled) once `stop-now` was asked."""
        if self.stop_now:
            raise TrainerError("cancelled", "Training was stopped at once; the newest checkpoint stands.")
