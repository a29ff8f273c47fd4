"""Files that are written once: to a temporary name, synced, then given their name only if nothing has it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from typing import Iterator

from .errors import TrainerError

try:
    import fcntl
except ImportError:
    fcntl = None


def refuse_existing(path: str) -> None:
    if os.path.lexists(path):
        raise TrainerError("conflict", f"{path} exists and is never overwritten: choose another name, or remove it.")


@contextlib.contextmanager
def new_path(path: str) -> Iterator[str]:
    """A temporary path beside `path` for a file or folder that the body writes; it becomes `path` when the body ends well
    and disappears otherwise. Raises TrainerError(conflict) when `path` exists, before the body or after it."""
    refuse_existing(path)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.partial"
    try:
        yield temporary
        sync_tree(temporary)
        refuse_existing(path)
        os.rename(temporary, path)
        _sync(os.path.dirname(os.path.abspath(path)))
    finally:
        if os.path.isdir(temporary):
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)


class FolderLock:
    """Makes this process the only one that writes to a folder, until `release` or its end, however it ends.

    An engine killed with -9 leaves its trainer a few seconds; the next engine's trainer waits for that. Raises
    TrainerError(conflict) when the folder is still taken after `seconds`."""

    def __init__(self, folder: str, seconds: float) -> None:
        os.makedirs(folder, exist_ok=True)
        self._folder = None if fcntl is None else os.open(folder, os.O_RDONLY)
        deadline = time.monotonic() + seconds
        while not self._take():
            if time.monotonic() > deadline:
                self.release()
                raise TrainerError("conflict", f"Another trainer writes to {folder}; end it, or wait for it.")
            time.sleep(0.1)

    def _take(self) -> bool:
        if self._folder is None:
            return True  # Windows: the engine's own lock is all there is
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            return False

    def release(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None


def sync_tree(path: str) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            _sync(os.path.join(folder, name))
    _sync(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_sha256(folder: str) -> str:
    """Hash of the lines "<sha256 of the file>  <name>" of a flat folder, by name: what `sha256sum * | sha256sum` tells."""
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    lines = "".join(f"{file_sha256(os.path.join(folder, name))}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()
