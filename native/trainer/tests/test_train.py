"""Whole trainings of a tiny model in this process: what is computed, reported, stopped and refused."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
from typing import Any, Callable

import pytest
import torch
import transformers
from peft import PeftModel
from torch.nn.functional import cross_entropy

from trainer import checkpoint, loop
from trainer.control import Control
from trainer.protocol import Command
from trainer.serve import run_order
from trainer.testing.orders import parsed, wire_order
from trainer.testing.vocabulary_gguf import read_vocabulary, write_vocabulary_gguf
from trainer.testing.window_sets import Draft, random_drafts, write_window_set
from trainer.windows import WindowSet

Event = dict[str, Any]
Order = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def bench(model_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = str(tmp_path_factory.mktemp("bench"))
    folder = model_folder("llama")
    served = write_vocabulary_gguf(f"{root}/served.gguf", read_vocabulary(folder))
    windows = write_window_set(f"{root}/windows", random_drafts([60, 90, 40, 75, 120, 33, 80], 400, validate=2))
    return {"folder": folder, "served": served, "windows": windows}


@pytest.fixture
def order(bench: dict[str, str], tmp_path: Any) -> Order:
    def make(**recipe: Any) -> dict[str, Any]:
        windows = recipe.pop("windows", bench["windows"])
        return wire_order(bench["folder"], bench["served"], windows, str(tmp_path / "out"), **recipe)

    return make


def train(wire: dict[str, Any], on_event: Callable[[Event, Control], None] = lambda event, control: None) -> list[Event]:
    events: list[Event] = []
    control = Control()

    def emit(event: Event) -> None:
        events.append(json.loads(json.dumps(event, allow_nan=False)))
        on_event(event, control)

    run_order(Command("start", parsed(wire)), emit, control)
    return events


def of(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def at_step(number: int, command: str) -> Callable[[Event, Control], None]:
    def act(event: Event, control: Control) -> None:
        if event["kind"] == "step" and event["step"] == number:
            control.apply(command)

    return act


def losses(events: list[Event]) -> dict[int, float]:
    return {event["step"]: event["loss"] for event in of(events, "step")}


def adapter_bytes(wire: dict[str, Any], step: int) -> bytes:
    with open(os.path.join(checkpoint.folder_of(wire["output"], step), checkpoint.ADAPTER), "rb") as file:
        return file.read()


def plain_losses(network: Any, folder: str) -> dict[int, tuple[float, int]]:
    """Window index -> loss through the model's own forward with full logits, and its number of labels."""
    windows, found = WindowSet(folder), {}
    for window in windows.windows:
        example = windows.example(window)
        with torch.no_grad():
            logits = network(input_ids=example.ids[None]).logits[0]
        loss = cross_entropy(logits[example.labels - 1], example.ids[example.labels])
        found[window.index] = (float(loss), window.labels)
    return found


def test_reported_losses_are_those_of_the_plain_model(bench: dict[str, str], order: Order) -> None:
    wire = order(dropout=0)
    events = train(wire)
    kinds = [event["kind"] for event in events if event["kind"] not in ("log", "step")]
    assert kinds == ["started", "validation", *["validation", "checkpoint"] * 3, "done"]
    started, done = events[0], events[-1]
    assert started["fromStep"] == 0 and started["adaptedModules"] == 14
    assert (done["state"], done["step"]) == ("finished", 6)

    base = transformers.AutoModelForCausalLM.from_pretrained(bench["folder"], dtype=torch.float32).eval()
    plain = plain_losses(base, bench["windows"])
    held_out = [plain[5], plain[6]]
    weighted = sum(loss * labels for loss, labels in held_out) / sum(labels for _, labels in held_out)
    first = of(events, "validation")[0]
    assert held_out[0][1] != held_out[1][1] and first["labelledTokens"] == held_out[0][1] + held_out[1][1]
    assert first["loss"] == pytest.approx(weighted, rel=1e-5)  # every token counts the same
    step = of(events, "step")[0]  # adapters begin as zero
    assert step["loss"] == pytest.approx(sum(plain[i][0] for i in step["windows"]) / 2, rel=1e-5)  # every window does
    assert step["labelledTokens"] == sum(plain[i][1] for i in step["windows"]) and step["learningRate"] == 1e-3
    assert step["peakBytes"] > 0 and step["gradNorm"] > 0

    adapted = PeftModel.from_pretrained(base, checkpoint.folder_of(wire["output"], 6)).eval()
    held_out = [plain_losses(adapted, bench["windows"])[i] for i in (5, 6)]
    weighted = sum(loss * labels for loss, labels in held_out) / sum(labels for _, labels in held_out)
    assert of(events, "validation")[-1]["loss"] == pytest.approx(weighted, rel=1e-5)


def test_the_first_step_is_adams(order: Order) -> None:
    """With zero moments Adam moves every value by the learning rate against its gradient's sign, whatever its size;
    B begins as zero, so all of it stands at that distance."""
    wire = order(steps=1, dropout=0, checkpointEvery=1, learningRate=3e-4, warmupSteps=1)
    train(wire)
    from safetensors.torch import load_file

    tensors = load_file(os.path.join(checkpoint.folder_of(wire["output"], 1), checkpoint.ADAPTER))
    moved = torch.cat([t.flatten().abs() for name, t in tensors.items() if "lora_B" in name])
    assert float(moved.median()) == pytest.approx(3e-4, rel=1e-3) and float(moved.max()) <= 3e-4 * 1.001


def test_training_lowers_validation_loss(order: Order, tmp_path: Any) -> None:
    """Every token follows from the one before, round a circle of twelve; held out is another beginning."""
    circle = [17, 300, 41, 222, 9, 130, 64, 350, 28, 101, 260, 77]

    def walk(start: int) -> list[int]:
        return [circle[(start + i) % 12] for i in range(48)]

    drafts = [Draft(walk(i), [(16, 48)], task=f"t{i % 2}", split="validate" if i == 7 else "train") for i in range(8)]
    windows = write_window_set(str(tmp_path / "rule"), drafts)
    events = train(order(windows=windows, steps=40, learningRate=1e-2, validateEvery=10, checkpointEvery=40))
    curve = [event["loss"] for event in of(events, "validation")]
    assert len(curve) == 5 and curve[-1] < 0.5 * curve[0]


def test_the_same_order_trains_the_same_bytes(order: Order) -> None:
    wire = order()
    first = train(wire)
    second = train({**wire, "output": wire["output"] + "-2"})
    assert losses(first) == losses(second) and len(losses(first)) == 6
    assert adapter_bytes(wire, 6) == adapter_bytes({"output": wire["output"] + "-2"}, 6)
    other = order(seed=8)
    assert losses(train({**other, "output": wire["output"] + "-3"})) != losses(first)


def test_stopped_after_a_step_it_goes_on_from_there(order: Order) -> None:
    wire = order()
    whole = losses(train({**wire, "output": wire["output"] + "-whole"}))
    first = train(wire, at_step(3, "stop-after-step"))
    assert (first[-1]["state"], first[-1]["step"]) == ("stopped", 3)
    assert [event["step"] for event in of(first, "checkpoint")] == [2, 3]
    second = train(wire)
    assert second[0]["fromStep"] == 3 and {**losses(first), **losses(second)} == whole
    assert adapter_bytes(wire, 6) == adapter_bytes({"output": wire["output"] + "-whole"}, 6)
    third = train(wire)  # nothing is left to do
    assert (third[0]["fromStep"], third[-1]["state"], len(losses(third))) == (6, "finished", 0)


def test_stopped_at_once_it_goes_on_from_the_newest_checkpoint(order: Order) -> None:
    wire = order()
    first = train(wire, at_step(3, "stop-now"))
    assert (first[-1]["state"], first[-1]["step"]) == ("stopped", 3)
    assert checkpoint.steps(wire["output"]) == [2]
    second = train(wire)
    assert second[0]["fromStep"] == 2
    assert losses(second)[3] == losses(first)[3]


@pytest.mark.parametrize("then", ["resume", "stop-after-step", "stop-now"])
def test_paused_it_waits_and_computes_the_same(order: Order, then: str) -> None:
    wire, reached, controls = order(), threading.Event(), []

    def on_event(event: Event, control: Control) -> None:
        at_step(3, "pause")(event, control)
        if event["kind"] == "log" and event["message"] == "Paused after step 3.":
            controls.append(control)
            reached.set()

    events: list[Event] = []
    thread = threading.Thread(target=lambda: events.extend(train(wire, on_event)))
    thread.start()
    assert reached.wait(60)
    assert checkpoint.steps(wire["output"]) == [2] and thread.is_alive()
    controls[0].apply(then)
    thread.join(60)
    state, step, saved = {
        "resume": ("finished", 6, [2, 4, 6]),
        "stop-after-step": ("stopped", 3, [2, 3]),  # no step is in progress: none is begun
        "stop-now": ("stopped", 3, [2]),
    }[then]
    assert (events[-1]["state"], events[-1]["step"]) == (state, step)
    assert sorted(checkpoint.steps(wire["output"])) == saved
    whole = losses(train({**wire, "output": wire["output"] + "-whole"}))
    assert losses(events) == {number: loss for number, loss in whole.items() if number <= step}


def test_a_loss_that_is_not_a_number_ends_it_and_the_checkpoints_stand(order: Order) -> None:
    wire = order(learningRate=1e30, checkpointEvery=1, validateEvery=100)
    events = train(wire)
    done = events[-1]
    assert done["kind"] == "done" and done["state"] == "diverged" and "not finite" in done["message"]
    saved = checkpoint.steps(wire["output"])
    assert saved == list(range(1, done["step"] + 1)) and saved
    metadata = checkpoint.newest(wire["output"], events[0]["orderSha256"], print)
    assert metadata is not None and metadata["step"] == done["step"] and all(map(math.isfinite, metadata["losses"]))
    again = train(wire)
    assert again[0]["fromStep"] == done["step"] and again[-1]["state"] == "diverged"


def test_a_validation_loss_that_is_not_a_number_ends_it_unsaved(order: Order) -> None:
    wire = order(learningRate=1e30, warmupSteps=1, checkpointEvery=1, validateEvery=1)
    events = train(wire)
    assert events[-1]["state"] == "diverged" and of(events, "validation")[-1]["loss"] is None
    assert of(events, "validation")[-1]["step"] not in checkpoint.steps(wire["output"])


def test_validation_that_keeps_rising_is_a_gate_that_a_second_start_passes(order: Order, tmp_path: Any) -> None:
    """Trained is the opposite of what is held out: the same beginnings, other answers."""
    drafts = [Draft([10, 11, 12, 13 + i] * 8, [(4, 32)], split="train") for i in range(4)]
    windows = write_window_set(str(tmp_path / "against"), [*drafts, Draft([10, 200, 11, 300] * 8, [(4, 32)], split="validate")])
    recipe = dict(windows=windows, learningRate=2e-2, validateEvery=1, checkpointEvery=100, steps=12, dropout=0)
    patient = train({**order(**recipe), "output": str(tmp_path / "patient")})
    curve = [event["loss"] for event in of(patient, "validation")]
    gate = next(i for i in range(2, len(curve)) if curve[i - 2] < curve[i - 1] < curve[i])
    assert patient[-1]["state"] == "finished" and gate < 12

    wire = order(**recipe, patience=2)
    first = train(wire)
    assert (first[-1]["state"], first[-1]["step"]) == ("diverged", gate) and "rose 2 times" in first[-1]["message"]
    assert checkpoint.steps(wire["output"]) == [gate]
    second = train(wire)
    assert second[0]["fromStep"] == gate and losses(second)[gate + 1] == losses(patient)[gate + 1]


def test_without_held_out_windows_validation_says_so(order: Order, tmp_path: Any) -> None:
    windows = write_window_set(str(tmp_path / "w"), random_drafts([40, 50], 400, validate=0))
    events = train(order(windows=windows, patience=2))
    assert events[-1]["state"] == "finished"
    assert {(event["loss"], event["labelledTokens"]) for event in of(events, "validation")} == {(None, 0)}


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
    ],
)
def test_exhausted_memory_is_an_error_that_says_what_to_do(order: Order, monkeypatch: Any, failure: BaseException) -> None:
    wire, real, calls = order(), loop.window_loss, [0]

    def failing(*arguments: Any, **options: Any) -> float:
        calls[0] += 1
        if calls[0] == 11:  # in step 3: two windows a validation and a step
            raise failure
        return real(*arguments, **options)

    monkeypatch.setattr(loop, "window_loss", failing)
    events = train(wire)
    error = events[-1]["error"]
    assert error["code"] == "prerequisite" and error["details"] == {"reason": "out_of_memory"} and "train.rank" in error["message"]
    again = train(wire)
    assert again[0]["fromStep"] == 2 and again[-1]["state"] == "finished"


def test_checkpoints_of_another_order_are_never_overwritten(order: Order) -> None:
    wire = order()
    train(wire)
    before = adapter_bytes(wire, 2)
    events = train(order(rank=2))
    assert events[-1]["error"]["code"] == "conflict" and adapter_bytes(wire, 2) == before
    moved = {**wire, "windows": shutil.copytree(wire["windows"], wire["output"] + "-w")}
    assert train(moved)[0]["fromStep"] == 6  # the same windows at another place are the same order


def test_a_wrong_vocabulary_stops_it_before_anything_is_written(bench: dict[str, str], order: Order, tmp_path: Any) -> None:
    vocabulary = read_vocabulary(bench["folder"])
    vocabulary["tokens"][300], vocabulary["tokens"][301] = vocabulary["tokens"][301], vocabulary["tokens"][300]
    wire = {**order(), "servedGguf": write_vocabulary_gguf(f"{tmp_path}/other.gguf", vocabulary)}
    events = train(wire)
    assert [event["kind"] for event in events] == ["error"] and events[0]["error"]["details"]["id"] == 300
    assert not os.path.exists(wire["output"])


def test_an_earlier_adapter_is_merged_and_a_fresh_one_trained(bench: dict[str, str], order: Order, tmp_path: Any) -> None:
    first = order(learningRate=2e-2)
    train(first)
    adapter = checkpoint.folder_of(first["output"], 6)
    second = {**order(), "output": str(tmp_path / "second")}
    second["model"] = {**second["model"], "merged": [adapter]}
    events = train(second)
    assert events[0]["fromStep"] == 0 and events[-1]["state"] == "finished"
    first_end = json.load(open(os.path.join(adapter, checkpoint.METADATA), encoding="utf-8"))["validations"][-1][1]
    assert of(events, "validation")[0]["loss"] == pytest.approx(first_end, rel=1e-4)
