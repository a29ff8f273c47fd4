"""The trainer as the engine runs it: a process, lines in, lines out."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from typing import Any

NATIVE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENVIRONMENT = {**os.environ, "PYTHONPATH": NATIVE}
PATIENCE_SECONDS = 120.0  # for an event that never comes


class Sidecar:
    """`with Sidecar() as s`; `events` holds everything it said. Leaving the block kills what is left of it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "trainer", "serve"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT
        )
        self.pid = self._process.pid
        self.events: list[dict[str, Any]] = []
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # a killed process may leave half a line
                self._queue.put(json.loads(line))
        self._queue.put(None)

    def send(self, kind: str, order: dict[str, Any] | None = None) -> None:
        self.send_bytes(json.dumps({"kind": kind} if order is None else {"kind": kind, "order": order}).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def read(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of `kinds`; others are passed over, except an error, which fails. {} at the end."""
        while (event := self._queue.get(timeout=PATIENCE_SECONDS)) is not None:
            self.events.append(event)
            if event["kind"] in kinds:
                return event
            if event["kind"] == "error":
                raise AssertionError(event["error"])
        return {}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> int:
        """Ends its input, and returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(PATIENCE_SECONDS)
        self.read()
        return code

    def __enter__(self) -> "Sidecar":
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()
