"""Prints the commands of trainer/protocol.py as JSON, for the test that compares them with the engine's schemas.

    PYTHONPATH=native python3 -m trainer.testing.describe_protocol

A field is an object of fields, [items], {"tuple": [...]}, {"optional": ...}, {"oneOf": [...]}, or text: the type and its limits.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from typing import Any, Literal

from ..protocol import CONTROLS, ORDERS, PROTOCOL, camel

SCALARS = {str: "text", int: "integer", float: "number", bool: "boolean"}


def describe(shape: Any) -> Any:
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if dataclasses.is_dataclass(shape):
        hints = typing.get_type_hints(shape)
        return {
            camel(entry.name): with_limits(describe(hints[entry.name]), entry.metadata)
            for entry in dataclasses.fields(shape)
        }
    if origin is Literal:
        return {"oneOf": sorted(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"optional": describe(arguments[0])}
    if origin is list:
        return [describe(arguments[0])]
    if origin is tuple:
        return {"tuple": [describe(kind) for kind in arguments]}
    return SCALARS[shape]


def with_limits(form: Any, limits: typing.Mapping[str, Any]) -> Any:
    if not limits:
        return form
    low = f" {'>' if limits['above'] else '>='} {limits['low']}"
    return form + low + ("" if limits["high"] == math.inf else f" <= {limits['high']}")


if __name__ == "__main__":
    orders = {kind: describe(shape) for kind, shape in ORDERS.items()}
    print(json.dumps({"protocol": PROTOCOL, "controls": sorted(CONTROLS), "orders": orders}))
