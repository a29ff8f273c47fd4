"""Reading of window sets: labels, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Callable

import pytest

from trainer.errors import TrainerError
from trainer.testing.window_sets import Draft, write_window_set
from trainer.windows import WindowSet

DRAFTS = [
    Draft([7, 8, 9, 10, 11], [(0, 2), (4, 5)], role="subagent"),
    Draft([1, 2, 3], [(2, 3)], split="validate"),
]


@pytest.fixture
def folder(tmp_path: Any) -> str:
    return write_window_set(str(tmp_path / "set"), DRAFTS)


def test_ids_and_labels_of_a_window(folder: str) -> None:
    windows = WindowSet(folder)
    example = windows.example(windows.windows[0])
    assert example.ids.tolist() == [7, 8, 9, 10, 11]
    assert example.labels.tolist() == [1, 4]  # nothing stands before the first token to predict it from
    assert windows.windows[0].labels == 2
    assert windows.example(windows.windows[1]).labels.tolist() == [2]
    assert [w.index for w in windows.split("train")] == [0] and [w.index for w in windows.split("validate")] == [1]
    assert windows.largest_id() == 11


def edit_lines(folder: str, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Changes records and makes the manifest agree, so that the check behind the hash is reached."""
    path, manifest_path = os.path.join(folder, "windows.jsonl"), os.path.join(folder, "manifest.json")
    with open(path, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    change(records)
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    with open(path, "wb") as file:
        file.write(data)
    with open(manifest_path, encoding="utf-8") as file:
        manifest = json.load(file)
    manifest["files"]["windows"] = hashlib.sha256(data).hexdigest()
    with open(manifest_path, "w", encoding="utf-8") as file:
        json.dump(manifest, file)


BROKEN: dict[str, tuple[Callable[[list[dict[str, Any]]], Any], str]] = {
    "a gap between blocks": (lambda r: r[0]["blocks"][1].update(start=3), "not contiguous"),
    "a wrong label count": (lambda r: r[0].update(labelledTokens=4), "label count"),
    "an unknown role": (lambda r: r[0].update(role="judge"), "role"),
    "an index out of order": (lambda r: r[0].update(index=5), "index"),
    "blocks shorter than the window": (lambda r: r[1].update(length=4), "length"),
    "an offset that overlaps": (lambda r: r[1].update(offset=4), "does not begin"),
    "fewer windows than tokens": (lambda r: r.pop(), "tokens.u32 holds 8"),
    "nothing to train on": (lambda r: r[0].update(split="validate"), "no window to train"),
    "no label": (lambda r: (r[1]["blocks"][-1].update(part="context"), r[1].update(labelledTokens=0)), "no token to train"),
    "a field missing": (lambda r: r[0].pop("blocks"), "not a window record"),
    "blocks that are no list": (lambda r: r[0].update(blocks=3), "not a window record"),
    "a record that is no object": (lambda r: r.__setitem__(0, [1]), "not a window record"),
}


@pytest.mark.parametrize(("change", "says"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_record_is_refused(folder: str, change: Any, says: str) -> None:
    edit_lines(folder, change)
    with pytest.raises(TrainerError, match=says) as refusal:
        WindowSet(folder)
    assert refusal.value.code == "invalid_input"


@pytest.mark.parametrize("name", ["tokens.u32", "windows.jsonl"])
def test_a_changed_file_is_refused(folder: str, name: str) -> None:
    with open(os.path.join(folder, name), "r+b") as file:
        file.seek(4)
        file.write(b"x")
    with pytest.raises(TrainerError, match=f"{name} is not the file"):
        WindowSet(folder)


@pytest.mark.parametrize("name", ["tokens.u32", "windows.jsonl", "manifest.json"])
def test_a_missing_file_is_named(folder: str, name: str) -> None:
    os.remove(os.path.join(folder, name))
    with pytest.raises(TrainerError, match=name) as refusal:
        WindowSet(folder)
    assert refusal.value.code == "not_found"


@pytest.mark.parametrize("text", ["{", "[]", "null", '{"format": 1}', '{"format": 1, "files": []}'])
def test_a_manifest_of_another_form_is_refused(folder: str, text: str) -> None:
    with open(os.path.join(folder, "manifest.json"), "w", encoding="utf-8") as file:
        file.write(text)
    with pytest.raises(TrainerError) as refusal:
        WindowSet(folder)
    assert refusal.value.code == "invalid_input"


def test_half_a_token_is_refused(folder: str) -> None:
    path, manifest_path = os.path.join(folder, "tokens.u32"), os.path.join(folder, "manifest.json")
    with open(path, "ab") as file:
        file.write(b"\0")
    with open(path, "rb") as file, open(manifest_path, "r+", encoding="utf-8") as manifest:
        changed = json.load(manifest)
        changed["files"]["tokens"] = hashlib.file_digest(file, "sha256").hexdigest()
        manifest.seek(0)
        json.dump(changed, manifest)
    with pytest.raises(TrainerError, match="within a token"):
        WindowSet(folder)
