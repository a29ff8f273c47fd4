"""Training from GGUF files: a small real model on recorded conversations, and the hybrid architecture."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import transformers

from trainer.control import Control
from trainer.gguf_file import GgufHeader
from trainer.identity import Vocabulary
from trainer.protocol import Command
from trainer.serve import run_order
from trainer.testing.llama_sources import ROOT
from trainer.testing.orders import parsed, wire_order
from trainer.testing.window_sets import Draft, random_drafts, write_window_set
from trainer.windows import WindowSet

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
PLACES = [os.path.join(ROOT, ".mass", folder, NAME) for folder in ("models", "test-models")]

# Orchestrator and workers of a small team: question, and the answer that is trained.
TALKS = [
    ("List the columns of sales.csv.", "DELEGATE reader: open sales.csv and return its header line only. CHECK: three columns."),
    ("Is the test split ever read in training?", "DELEGATE auditor: search the code for reads of the test split. CHECK: none."),
    ("Fit a baseline on the training rows.", "DELEGATE modeller: fit a linear baseline on training rows only. CHECK: mae reported."),
    ("Write the report.", "DELEGATE writer: write report.md from metrics.json. CHECK: every number has a source."),
    ("Plot the residuals.", "DELEGATE plotter: plot residuals of the baseline to residuals.png. CHECK: the file exists."),
    ("Summarise the findings.", "DELEGATE writer: summarise the findings in five lines. CHECK: no claim without evidence."),
]
TOKENS_SHA256 = "4c54ae47bfd91041dbc8bc0700fb12029cb9cf59b3505c7213b80b23e2dce679"


@pytest.fixture(scope="module")
def smollm2() -> str:
    path = next((path for path in PLACES if os.path.isfile(path)), None)
    if path is None:
        pytest.fail(f"{NAME} is not there: run npm test first, which fetches it into .mass/test-models.")
    return path


def recorded_windows(model: str, folder: str) -> str:
    """Each talk is one window; the answer with its end-of-turn token carries the loss."""
    tokenizer = Vocabulary(GgufHeader(model)).tokenizer()
    assert tokenizer is not None
    drafts = []
    for i, (question, answer) in enumerate(TALKS):
        head = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        before, after = (tokenizer.encode(text, add_special_tokens=False).ids for text in (head, f"{answer}<|im_end|>"))
        split = "validate" if i == len(TALKS) - 1 else "train"
        drafts.append(Draft(before + after, [(len(before), len(before) + len(after))], task=f"t{i % 2}", split=split))
    return write_window_set(folder, drafts)


def train(wire: dict[str, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    run_order(Command("start", parsed(wire)), events.append, Control())
    return events


def validations(events: list[dict[str, Any]]) -> list[float]:
    return [event["loss"] for event in events if event["kind"] == "validation"]


def test_a_real_model_learns_from_recorded_conversations(smollm2: str, tmp_path: Any) -> None:
    windows = recorded_windows(smollm2, str(tmp_path / "windows"))
    with open(os.path.join(windows, "tokens.u32"), "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == TOKENS_SHA256
    recipe = dict(steps=8, learningRate=3e-3, warmupSteps=1, validateEvery=4, checkpointEvery=8, lossChunk=512)
    events = train(wire_order(smollm2, smollm2, windows, str(tmp_path / "out"), **recipe))
    assert events[-1].get("state") == "finished", events[-1]
    assert events[0]["adaptedModules"] == 30 * 7
    curve = validations(events)
    assert len(curve) == 3 and curve[1] < curve[0] and curve[2] < 0.7 * curve[0]

    folder, file_name = os.path.split(smollm2)
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file_name, dtype=torch.float32)
    held_out = WindowSet(windows)
    example = held_out.example(held_out.split("validate")[0])
    targets = torch.full_like(example.ids, -100)
    targets[example.labels] = example.ids[example.labels]
    with torch.no_grad():
        plain = float(base(input_ids=example.ids[None], labels=targets[None]).loss)
    assert curve[0] == pytest.approx(plain, rel=1e-4)


def test_the_hybrid_architecture_trains_from_its_gguf(tmp_path: Any) -> None:
    model = str(tmp_path / "tiny.gguf")
    script = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "testing", "make_tiny_hybrid.py")
    subprocess.run([sys.executable, script, model], check=True, capture_output=True)
    windows = write_window_set(str(tmp_path / "w"), [Draft([50 + i % 9 for i in range(70)], [(20, 70)], split=s) for s in ("train", "validate")])
    events = train(wire_order(model, model, windows, str(tmp_path / "out"), steps=10, learningRate=1e-2, validateEvery=5))
    assert events[0]["adaptedModules"] == 4 * 3 + 3 * 3 + 4
    assert events[-1].get("state") == "finished", events[-1]
    curve = validations(events)
    assert curve[-1] < 0.8 * curve[0]
    beyond = write_window_set(str(tmp_path / "beyond"), random_drafts([20, 20], 400))
    ids = WindowSet(beyond).largest_id()
    assert ids < 359 and train(wire_order(model, model, beyond, str(tmp_path / "o2"), steps=1))[-1]["kind"] == "done"
    outside = write_window_set(str(tmp_path / "outside"), [Draft([5, 400, 6], [(2, 3)])])
    error = train(wire_order(model, model, outside, str(tmp_path / "o3")))[-1]["error"]
    assert "id 400" in error["message"]
