"""Checkpoints: what they hold, and what a damaged, foreign or unwritable one does."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
from typing import Any, Iterator

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from trainer import checkpoint
from trainer.errors import TrainerError
from trainer.lora import LoraLinear
from trainer.protocol import Recipe

RECIPE = Recipe(2, 4.0, 0.0, 9, 1, 1e-3, 0, 1.0, (0.9, 0.95), 0.0, 1.0, 0.5, 1, 1, 0, 8, 1)
SHA = "a" * 64


def silent(text: str) -> None:
    del text


def make() -> tuple[dict[str, LoraLinear], torch.optim.AdamW]:
    torch.manual_seed(1)
    adapters = {f"model.layers.{i}.mlp.up_proj": LoraLinear(nn.Linear(6, 5), 2, 4.0, 0.0) for i in range(2)}
    optimizer = torch.optim.AdamW([p for _, p in checkpoint.named_parameters(adapters)], lr=1e-2)
    return adapters, optimizer


def step(adapters: dict[str, LoraLinear], optimizer: torch.optim.Optimizer) -> None:
    for adapter in adapters.values():
        adapter(torch.randn(3, 6)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def save(output: str, pair: Any, number: int, **more: Any) -> checkpoint.Saved:
    metadata = {"step": number, "orderSha256": SHA, "base": "/base", **more}
    return checkpoint.save(output, *pair, RECIPE, metadata)


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]


def test_everything_that_decides_the_next_step_comes_back(tmp_path: Any) -> None:
    out, pair = str(tmp_path), make()
    for _ in range(3):
        step(*pair)
    saved = save(out, pair, 3, sampler={"drawn": 9})
    expected_draws = draws()
    torch.manual_seed(77)
    step(*pair)
    after = checkpoint.adapter_tensors(pair[0])

    other = make()  # the same frozen weights, nothing learned
    metadata = checkpoint.newest(out, SHA, silent)
    assert metadata is not None and metadata["sampler"] == {"drawn": 9} and saved.folder == checkpoint.folder_of(out, 3)
    checkpoint.restore(saved.folder, *other, metadata)
    assert draws() == expected_draws
    torch.manual_seed(77)
    step(*other)
    assert all(torch.equal(tensor, after[name]) for name, tensor in checkpoint.adapter_tensors(other[0]).items())


def test_the_files_are_what_the_metadata_says_and_what_others_read(tmp_path: Any) -> None:
    pair = make()
    step(*pair)
    saved = save(str(tmp_path), pair, 1)
    metadata = json.load(open(os.path.join(saved.folder, checkpoint.METADATA), encoding="utf-8"))
    sums = subprocess.run(["sha256sum", *metadata["files"]], cwd=saved.folder, capture_output=True, text=True, check=True).stdout
    assert dict(reversed(line.split()) for line in sums.splitlines()) == metadata["files"]
    assert saved.adapter_sha256 == metadata["files"][checkpoint.ADAPTER]
    assert saved.size == sum(os.path.getsize(os.path.join(saved.folder, name)) for name in os.listdir(saved.folder))
    weights = load_file(os.path.join(saved.folder, checkpoint.ADAPTER))  # the library's own reader
    assert weights.keys() == checkpoint.adapter_tensors(pair[0]).keys()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in checkpoint.adapter_tensors(pair[0]).items())
    config = json.load(open(os.path.join(saved.folder, checkpoint.CONFIG), encoding="utf-8"))
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 4.0, ["up_proj"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8])
def test_written_tensors_are_read_alike_in_every_format(tmp_path: Any, dtype: torch.dtype) -> None:
    tensors = {"a": torch.arange(6).reshape(2, 3).to(dtype), "none": torch.zeros(0, 4, dtype=dtype), "one": torch.tensor(7).to(dtype)}
    transposed = {**tensors, "a": tensors["a"].t()}
    with open(tmp_path / "x.safetensors", "wb") as file:
        checkpoint.write_safetensors(file.write, transposed)
    assert all(torch.equal(t, transposed[name]) for name, t in load_file(str(tmp_path / "x.safetensors")).items())


def test_only_the_newest_two_keep_their_optimizer(tmp_path: Any) -> None:
    out, pair = str(tmp_path), make()
    for number in (50, 100, 150):
        save(out, pair, number)
    kept = {s: checkpoint.OPTIMIZER in os.listdir(checkpoint.folder_of(out, s)) for s in checkpoint.steps(out)}
    assert kept == {50: False, 100: True, 150: True}


DAMAGE = {
    "a changed adapter": lambda folder: flip(os.path.join(folder, checkpoint.ADAPTER)),
    "a changed optimizer": lambda folder: flip(os.path.join(folder, checkpoint.OPTIMIZER)),
    "a shortened adapter": lambda folder: os.truncate(os.path.join(folder, checkpoint.ADAPTER), 20),
    "a missing adapter": lambda folder: os.remove(os.path.join(folder, checkpoint.ADAPTER)),
    "no optimizer": lambda folder: os.remove(os.path.join(folder, checkpoint.OPTIMIZER)),
    "no metadata": lambda folder: os.remove(os.path.join(folder, checkpoint.METADATA)),
    "half of the metadata": lambda folder: os.truncate(os.path.join(folder, checkpoint.METADATA), 40),
}


def flip(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_newest_is_passed_over_and_said(tmp_path: Any, damage: Any) -> None:
    out, pair = str(tmp_path), make()
    save(out, pair, 50)
    damage(save(out, pair, 100).folder)
    said: list[str] = []
    metadata = checkpoint.newest(out, SHA, said.append)
    assert metadata is not None and metadata["step"] == 50
    assert len(said) == 1 and "step-000100 is passed over" in said[0]
    save(out, pair, 100)  # and is replaced when training comes there again
    again = checkpoint.newest(out, SHA, said.append)
    assert again is not None and again["step"] == 100 and sorted(os.listdir(out)) == ["step-000050", "step-000100"]


def test_unfinished_folders_are_cleared_and_strangers_left(tmp_path: Any) -> None:
    out = str(tmp_path)
    os.makedirs(tmp_path / ".step-000050.partial")
    os.makedirs(tmp_path / "step-notes")
    assert checkpoint.newest(out, SHA, silent) is None
    assert os.listdir(out) == ["step-notes"]


def test_another_orders_checkpoint_is_a_conflict(tmp_path: Any) -> None:
    save(str(tmp_path), make(), 50)
    with pytest.raises(TrainerError) as refusal:
        checkpoint.newest(str(tmp_path), "b" * 64, silent)
    assert refusal.value.code == "conflict"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_adapter_that_is_not_finite_is_never_written(tmp_path: Any, bad: float) -> None:
    pair = make()
    with torch.no_grad():
        pair[0]["model.layers.1.mlp.up_proj"].lora_b[2, 1] = bad
    with pytest.raises(TrainerError, match="not finite"):
        save(str(tmp_path), pair, 50)
    assert os.listdir(tmp_path) == []


def test_a_write_that_fails_anywhere_leaves_the_older_and_no_trace(tmp_path: Any, monkeypatch: Any) -> None:
    """The disk fills at the nth call that touches it, for every n until all succeed."""
    out, pair = str(tmp_path), make()
    step(*pair)
    save(out, pair, 50)
    real_fsync, real_write, budget = os.fsync, checkpoint._write, [0]

    def spend() -> None:
        budget[0] -= 1
        if budget[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    def write(path: str, fill: Any) -> str:
        def spending(put: Any) -> None:
            def counted(data: bytes) -> None:
                spend()
                put(data)

            fill(counted)

        return real_write(path, spending)

    monkeypatch.setattr(checkpoint, "_write", write)
    monkeypatch.setattr(os, "fsync", lambda descriptor: (spend(), real_fsync(descriptor)))
    failures = 0
    for calls in range(200):
        budget[0] = calls
        try:
            save(out, pair, 100)
            break
        except OSError as error:
            assert error.errno == errno.ENOSPC
            failures += 1
        # The folder's own flush comes after the rename: then the checkpoint is there, and whole.
        metadata = checkpoint.newest(out, SHA, silent)
        assert metadata is not None and metadata["step"] in (50, 100)
        assert sorted(os.listdir(out)) in (["step-000050"], ["step-000050", "step-000100"])
    assert failures > 10 and checkpoint.steps(out) and checkpoint.newest(out, SHA, silent)["step"] == 100


@pytest.fixture
def small_disk(tmp_path: Any) -> Iterator[str]:
    folder = str(tmp_path / "disk")
    os.makedirs(folder)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk; a failing write is tested without it")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_disk_that_is_really_full_keeps_the_older_checkpoint(small_disk: str) -> None:
    pair = make()
    step(*pair)
    save(small_disk, pair, 50)
    with open(f"{small_disk}/filler", "wb", buffering=0) as file:
        with pytest.raises(OSError):
            while True:
                file.write(b"x" * 4096)
    with pytest.raises(OSError) as full:
        save(small_disk, pair, 100)
    assert full.value.errno == errno.ENOSPC
    assert sorted(os.listdir(small_disk)) == ["filler", "step-000050"]
    os.remove(f"{small_disk}/filler")
    assert checkpoint.newest(small_disk, SHA, silent)["step"] == 50
    save(small_disk, pair, 100)
