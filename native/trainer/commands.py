"""Which function does which order. A handler is `function(order, emit, control)`: it sends events through `emit(dict)`,
calls `control.check()` inside long work, and raises TrainerError. Modules are imported when first used, because each
brings heavy libraries with it."""

from __future__ import annotations

import importlib
from typing import Any, Callable

from .control import Control

Emit = Callable[[dict[str, Any]], None]
Handler = Callable[[Any, Emit, Control], None]

HANDLERS: dict[str, str] = {
    "plan": "memory:plan_command",
    "start": "loop:train_command",
    "score": "score:score_command",
    "merge": "merge:merge_command",
    "convert": "convert:convert_command",
    "convert-model": "convert:convert_model_command",
}


def handler(kind: str) -> Handler:
    module, function = HANDLERS[kind].split(":")
    return getattr(importlib.import_module(f".{module}", __package__), function)
