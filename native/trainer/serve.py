"""The sidecar's process: reads commands from standard input, runs one order at a time, sends events.

Standard output carries protocol lines and nothing else: its descriptor is kept aside and 1 is pointed at standard
error, so that no library, C code included, can print into the stream. The end of standard input means that the engine
is gone: the order in progress is given up and the process ends.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any, BinaryIO

from . import commands
from .control import Control
from .errors import TrainerError, to_error_data
from .protocol import CONTROLS, MAX_LINE_BYTES, PROTOCOL, Command, parse_line

GRACE_SECONDS = 5.0  # for the order in progress to reach a safe point once the engine is gone


class Events:
    """Writes one JSON line per event. Thread-safe. `NaN` never leaves: it is not JSON."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def __call__(self, event: dict[str, Any]) -> None:
        data = (json.dumps(event, allow_nan=False, separators=(",", ":")) + "\n").encode()
        with self._lock:
            while data:
                data = data[os.write(self._descriptor, data) :]


def take_standard_output() -> Events:
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return Events(kept)


class Reader(threading.Thread):
    """Turns lines into queued orders, each with a control of its own. A control line reaches the order that runs and
    those that wait, at once, and none that comes later."""

    def __init__(self, source: BinaryIO, emit: commands.Emit) -> None:
        super().__init__(name="commands", daemon=True)
        self.orders: queue.Queue[tuple[Command, Control] | None] = queue.Queue()
        self._source, self._emit = source, emit
        self._controls: list[Control] = []

    def run(self) -> None:
        while line := self._source.readline(MAX_LINE_BYTES + 2):
            if not line.strip():
                continue
            try:
                command = parse_line(line)
            except TrainerError as error:
                self._emit({"kind": "error", "error": to_error_data(error)})
                self._skip_rest(line)
                continue
            if command.kind in CONTROLS:
                self._apply(command.kind)
            else:
                self._controls.append(Control())
                self.orders.put((command, self._controls[-1]))
        self._apply("stop-now")
        self.orders.put(None)
        threading.Timer(GRACE_SECONDS, os._exit, (0,)).start()

    def _apply(self, kind: str) -> None:
        self._controls = [control for control in self._controls if not control.ended]
        for control in self._controls:
            control.apply(kind)

    def _skip_rest(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._source.readline(MAX_LINE_BYTES)


def serve(source: BinaryIO | None = None, emit: commands.Emit | None = None) -> int:
    emit = emit or take_standard_output()
    from .machine import capabilities  # torch: seconds

    emit({"kind": "hello", "protocol": PROTOCOL, "pid": os.getpid(), "capabilities": capabilities()})
    reader = Reader(source or sys.stdin.buffer, emit)
    reader.start()
    while (order := reader.orders.get()) is not None:
        command, control = order
        run_order(command, emit, control)
        control.ended = True
    os._exit(0)  # not sys.exit: libraries' threads must not hold up a process whose engine is gone


def run_order(command: Command, emit: commands.Emit, control: Control) -> bool:
    """Runs one order; every failure becomes an `error` event. Returns whether it succeeded."""
    try:
        commands.handler(command.kind)(command.order, emit, control)
        return True
    except BaseException as error:
        if not isinstance(error, TrainerError):
            import traceback

            traceback.print_exc(file=sys.stderr)
        emit({"kind": "error", "error": to_error_data(error)})
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return False
