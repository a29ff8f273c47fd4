"""The trainer as a process that is killed, starved of memory, or whose disk fills: resumed, it trains the same bytes."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
from typing import Any, Callable

import pytest

from trainer import checkpoint
from trainer.errors import TrainerError
from trainer.files import FolderLock
from trainer.testing.orders import wire_order
from trainer.testing.sidecar import Sidecar
from trainer.testing.vocabulary_gguf import read_vocabulary, write_vocabulary_gguf
from trainer.testing.window_sets import random_drafts, write_window_set

STEPS = 10
Order = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def make_order(model_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> Order:
    """Of the hybrid, with dropout: every generator and every kind of layer takes part."""
    root = str(tmp_path_factory.mktemp("resume"))
    folder = model_folder("hybrid")
    served = write_vocabulary_gguf(f"{root}/served.gguf", read_vocabulary(folder))
    windows = write_window_set(f"{root}/windows", random_drafts([60, 90, 40, 75, 120, 33], 400))

    def make(name: str, **recipe: Any) -> dict[str, Any]:
        trained, output = recipe.pop("windows", windows), name if "/" in name else f"{root}/{name}"
        changes = {"steps": STEPS, "dropout": 0.1, "checkpointEvery": 3, "validateEvery": 4, **recipe}
        return wire_order(folder, served, trained, output, **changes)

    return make


def losses(events: list[dict[str, Any]]) -> dict[int, float]:
    return {event["step"]: event["loss"] for event in events if event["kind"] == "step"}


def files(wire: dict[str, Any], step: int) -> dict[str, str]:
    metadata = checkpoint.read_metadata(checkpoint.folder_of(wire["output"], step))
    assert metadata is not None
    return metadata["files"]  # their sha256


@pytest.fixture(scope="module")
def whole(make_order: Order) -> tuple[dict[int, float], list[Any], dict[str, str]]:
    """Losses, validations and last files of a run that nothing disturbed."""
    wire = make_order("whole")
    with Sidecar() as sidecar:
        sidecar.send("start", wire)
        assert sidecar.read("done")["state"] == "finished"
    found = losses(sidecar.events)
    assert list(found) == list(range(1, STEPS + 1))
    return found, validations(sidecar.events), files(wire, STEPS)


def validations(events: list[dict[str, Any]]) -> list[Any]:
    return [(event["step"], event["loss"]) for event in events if event["kind"] == "validation"]


def finish_and_compare(wire: dict[str, Any], whole: Any, *, seen: dict[int, float], at_least: int) -> None:
    """Starts anew, as the engine does after a crash; everything computed again must be what was computed first."""
    with Sidecar() as sidecar:
        sidecar.send("start", wire)
        assert sidecar.read("started")["fromStep"] >= at_least
        assert sidecar.read("done")["state"] == "finished"
    expected, checks, last = whole
    again = losses(sidecar.events)
    assert {**seen, **again} == expected
    assert all(expected[step] == loss for step, loss in seen.items())
    assert set(validations(sidecar.events)) <= set(checks)
    # All bytes: adapter, its configuration, Adam's moments and the generators' states.
    assert files(wire, STEPS) == last
    metadata = checkpoint.read_metadata(checkpoint.folder_of(wire["output"], STEPS))
    assert metadata is not None and metadata["losses"] == list(expected.values())
    assert metadata["validations"] == [list(check) for check in checks]


@pytest.mark.parametrize("moment", ["before the first checkpoint", "at a random step", "within a checkpoint"])
def test_killed_it_resumes_to_the_same_bytes(make_order: Order, whole: Any, moment: str) -> None:
    victim = {"before the first checkpoint": 1, "at a random step": random.randrange(3, STEPS), "within a checkpoint": 6}[moment]
    wire = make_order(f"killed-{moment.replace(' ', '-')}")
    print(f"killed after step {victim}")
    with Sidecar() as sidecar:
        sidecar.send("start", wire)
        while sidecar.read("step")["step"] != victim:
            pass
        if moment == "within a checkpoint":
            wait_for_checkpoint_folder(wire["output"], victim)
        sidecar.kill()
        sidecar.read()  # what it still had said
    finish_and_compare(wire, whole, seen=losses(sidecar.events), at_least=victim // 3 * 3 - 3)


def wait_for_checkpoint_folder(output: str, step: int) -> None:
    """Returns as soon as the checkpoint is being written; it may be whole an instant later, and both must resume."""
    partial = os.path.join(output, f".step-{step:06d}.partial")
    while not os.path.exists(partial) and not os.path.exists(checkpoint.folder_of(output, step)):
        pass


def test_the_end_of_its_input_ends_it_at_a_safe_point(make_order: Order, whole: Any) -> None:
    wire = make_order("abandoned")
    with Sidecar() as sidecar:
        sidecar.send("start", wire)
        while sidecar.read("step")["step"] != 4:
            pass
        assert sidecar.close() == 0
    assert sidecar.events[-1]["kind"] == "done" and sidecar.events[-1]["state"] == "stopped"
    finish_and_compare(wire, whole, seen=losses(sidecar.events), at_least=3)


def test_two_trainers_never_write_to_one_folder(make_order: Order, whole: Any) -> None:
    """As when an engine is killed and another begins before the first one's trainer has ended."""
    wire = make_order("shared")
    with Sidecar() as first, Sidecar() as second:
        first.send("start", wire)
        while first.read("step")["step"] != 4:
            pass
        first.send("pause")
        second.send("start", wire)
        while "Paused" not in first.read("log")["message"]:
            pass
        assert first.close() == 0
        assert second.read("started")["fromStep"] >= 3
        assert second.read("done")["state"] == "finished"
    assert files(wire, STEPS) == whole[2]


def test_a_folder_that_stays_taken_is_refused(tmp_path: Any) -> None:
    lock = FolderLock(str(tmp_path / "out"), 1)
    with pytest.raises(TrainerError, match="Another trainer writes to"):
        FolderLock(str(tmp_path / "out"), 0.2)
    lock.release()
    FolderLock(str(tmp_path / "out"), 0.2).release()


def test_moved_files_are_the_same_training(make_order: Order, whole: Any, tmp_path: Any) -> None:
    wire = make_order("before-moving", steps=STEPS)
    with Sidecar() as sidecar:
        sidecar.send("start", wire)
        sidecar.read("checkpoint")
        sidecar.send("stop-after-step")
        sidecar.read("done")
    base = shutil.copytree(wire["model"]["base"]["path"], tmp_path / "base")
    moved = {**wire, "model": {"base": {"kind": "folder", "path": str(base)}, "merged": []}}
    moved["output"] = str(tmp_path / "out")
    shutil.move(wire["output"], moved["output"])
    with Sidecar() as again:
        again.send("start", moved)
        assert again.read("started")["fromStep"] >= 3
        assert again.read("done")["state"] == "finished"
    assert {**losses(sidecar.events), **losses(again.events)} == whole[0]
    weights = "adapter_model.safetensors"  # its configuration names the base's folder
    assert files(moved, STEPS)[weights] == whole[2][weights]


def paused_before_the_first_step(sidecar: Sidecar, wire: dict[str, Any]) -> None:
    sidecar.send("start", wire)
    sidecar.send("pause")
    while "Paused" not in sidecar.read("log")["message"]:
        pass


def test_without_memory_it_says_so_lives_on_and_resumes(make_order: Order, tmp_path: Any) -> None:
    """The limit on its address space is set to what it has: the next large tensor cannot be had."""
    drafts = random_drafts([6000, 40], 400, share=0.9)
    windows = write_window_set(str(tmp_path / "long"), drafts)
    wire = make_order("starved", windows=windows, steps=1, windowsPerStep=1, lossChunk=6000)
    with Sidecar() as sidecar:
        paused_before_the_first_step(sidecar, wire)
        with open(f"/proc/{sidecar.pid}/statm", encoding="ascii") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.prlimit(sidecar.pid, resource.RLIMIT_AS, (size + (4 << 20), resource.RLIM_INFINITY))
        sidecar.send("resume")
        error = sidecar.read("error")["error"]
        assert error["code"] == "prerequisite" and error["details"] == {"reason": "out_of_memory"}
        resource.prlimit(sidecar.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        sidecar.send("start", wire)
        assert sidecar.read("done")["state"] == "finished"


def test_on_a_full_disk_it_says_so_and_resumes_to_the_same_bytes(make_order: Order, whole: Any, tmp_path: Any) -> None:
    disk = str(tmp_path / "disk")
    os.makedirs(disk)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "none", disk]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk; a failing write is tested without it")
    try:
        wire = make_order(f"{disk}/out")
        with Sidecar() as sidecar:
            sidecar.send("start", wire)
            assert sidecar.read("checkpoint")["step"] == 3
            fill(f"{disk}/filler")
            error = sidecar.read("error")["error"]
            assert error["code"] == "prerequisite" and error["details"] == {"reason": "disk_full"}
            assert checkpoint.steps(wire["output"]) == [3] and os.listdir(wire["output"]) == ["step-000003"]
            os.remove(f"{disk}/filler")
        finish_and_compare(wire, whole, seen=losses(sidecar.events), at_least=3)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(path: str) -> None:
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 65536):
                pass
        except OSError:
            pass
