"""Errors as data: a code for programs, one sentence that tells a person what to do, numbers in `details`."""

from __future__ import annotations

import errno
from typing import Any, Literal

Code = Literal[
    "usage", "not_found", "conflict", "invalid_input", "prerequisite", "infrastructure", "cancelled", "gate", "internal"
]


class TrainerError(Exception):
    def __init__(self, code: Code, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
        self.details = details or {}


OUT_OF_MEMORY_REMEDY = (
    "Training ran out of memory: close other programs, render shorter windows, lower train.rank, "
    "or use a machine with more memory; the checkpoints stand and training goes on from the newest."
)
DISK_FULL_REMEDY = (
    "The disk is full and the checkpoint was not written: free space and start training again; "
    "it goes on from the newest checkpoint."
)


def is_out_of_memory(error: BaseException) -> bool:
    """Torch reports exhausted memory as three different exceptions, by device and allocator."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def to_error_data(error: BaseException) -> dict[str, Any]:
    """Any exception as the protocol's ErrorData."""
    if isinstance(error, TrainerError):
        data: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.details:
            data["details"] = error.details
        if error.__cause__ is not None:
            data["cause"] = str(error.__cause__)
        return data
    if isinstance(error, KeyboardInterrupt):
        return {"code": "cancelled", "message": "Interrupted; the newest checkpoint stands."}
    for reason, happened, remedy in (
        ("out_of_memory", is_out_of_memory(error), OUT_OF_MEMORY_REMEDY),
        ("disk_full", is_disk_full(error), DISK_FULL_REMEDY),
    ):
        if happened:
            return {
                "code": "prerequisite",
                "message": remedy,
                "details": {"reason": reason},
                "cause": str(error)[:2000],
            }
    if isinstance(error, OSError):
        return {"code": "infrastructure", "message": f"The trainer could not use a file: {error}."}
    return {"code": "internal", "message": f"The trainer failed: {type(error).__name__}: {str(error)[:2000]}"}
