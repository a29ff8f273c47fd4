"""Commands: what is let in, what is refused and named, and the process that reads them."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from typing import Any

import pytest

from trainer.errors import TrainerError, to_error_data
from trainer.protocol import CONTROLS, MAX_LINE_BYTES, ORDERS, TrainOrder, parse_line, to_wire
from trainer.testing.orders import parsed, wire_order
from trainer.testing.sidecar import ENVIRONMENT, Sidecar

ORDER = wire_order("/models/base", "/models/served.gguf", "/sets/1", "/out")


def test_an_order_survives_the_wire_in_both_directions() -> None:
    order = parsed(ORDER)
    assert isinstance(order, TrainOrder)
    assert order.recipe.windows_per_step == 2 and order.recipe.betas == (0.9, 0.95) and order.machine.allow_slow_kernels
    assert to_wire(order) == {**ORDER, "recipe": {**ORDER["recipe"], "alpha": 8.0, "gradNorm": 1.0, "weightDecay": 0.0}}
    assert parse_line(json.dumps({"kind": "start", "order": ORDER})).order == order
    assert [parse_line(json.dumps({"kind": kind})).kind for kind in CONTROLS] == list(CONTROLS)


WRONG: dict[str, tuple[list[Any], Any, str]] = {
    "a negative rank": (["recipe", "rank"], -1, "start.order.recipe.rank must be at least 1"),
    "half a step": (["recipe", "steps"], 1.5, "recipe.steps must be a whole number"),
    "a text for a number": (["recipe", "alpha"], "128", "recipe.alpha must be a finite number"),
    "alpha zero": (["recipe", "alpha"], 0, "recipe.alpha must be above 0"),
    "a truth value for a number": (["recipe", "seed"], True, "recipe.seed must be a whole number"),
    "dropout of one": (["recipe", "dropout"], 1, "recipe.dropout must be at least 0 and at most 0.9"),
    "one beta": (["recipe", "betas"], [0.9], "recipe.betas must be a list of 2"),
    "a beta that is no number": (["recipe", "betas", 1], None, "recipe.betas\\[1\\] must be a finite number"),
    "no patience": (["recipe", "patience"], None, "recipe.patience must be a whole number, not null"),
    "an unknown device": (["machine", "device"], "tpu", "machine.device must be one of auto, cpu, cuda, mps"),
    "a number for a truth value": (["machine", "allowSlowKernels"], 1, "allowSlowKernels must be true or false"),
    "a base that is a path": (["model", "base"], "/m", "model.base must be an object"),
    "a kind of base": (["model", "base", "kind"], "onnx", "base.kind must be one of folder, gguf"),
    "a number for a path": (["model", "merged"], [7], "model.merged\\[0\\] must be text"),
    "merged that is no list": (["model", "merged"], {}, "model.merged must be a list"),
}


@pytest.mark.parametrize(("path", "value", "says"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_field_is_named(path: list[Any], value: Any, says: str) -> None:
    order = copy.deepcopy(ORDER)
    place: Any = order
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(TrainerError, match=says) as refusal:
        parse_line(json.dumps({"kind": "start", "order": order}))
    assert refusal.value.code == "invalid_input"


def test_every_missing_field_of_every_order_is_named() -> None:
    for section in (None, "recipe", "machine", "model"):
        part = ORDER[section] if section else ORDER
        for key in part:
            order = copy.deepcopy(ORDER)
            del (order[section] if section else order)[key]
            with pytest.raises(TrainerError, match=f"\\.{key} is missing"):
                parse_line(json.dumps({"kind": "plan", "order": order}))
    for kind in ORDERS:
        with pytest.raises(TrainerError, match=f"{kind}.order must be an object"):
            parse_line(json.dumps({"kind": kind}))


GARBAGE = ["", "x", "null", "[]", "7", "{}", '{"kind": 3}', '{"kind": "explode"}', '{"kind":"start"', '"start"', "\x00\xff", "NaN"]


@pytest.mark.parametrize("line", GARBAGE)
def test_garbage_is_refused_with_a_sentence(line: str) -> None:
    with pytest.raises(TrainerError) as refusal:
        parse_line(line)
    assert refusal.value.code == "invalid_input" and refusal.value.message.endswith(".")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_numbers_that_are_none_are_refused(number: str) -> None:
    line = json.dumps({"kind": "start", "order": ORDER}).replace('"alpha": 8', f'"alpha": {number}')
    with pytest.raises(TrainerError, match="alpha must be a finite number"):
        parse_line(line)


def test_random_bytes_never_escape_as_another_error() -> None:
    generator, whole = random.Random(1), json.dumps({"kind": "start", "order": ORDER}).encode()
    for _ in range(2000):
        line = bytearray(whole)
        for _ in range(generator.randrange(1, 6)):
            line[generator.randrange(len(line))] = generator.randrange(256)
        try:
            parse_line(bytes(line))
        except TrainerError as error:
            assert error.code == "invalid_input"


def test_depth_that_exhausts_the_stack_is_refused() -> None:
    with pytest.raises(TrainerError):
        parse_line("[" * 100_000)


def test_errors_become_data() -> None:
    memory = to_error_data(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"))
    assert memory["code"] == "prerequisite" and memory["details"] == {"reason": "out_of_memory"}
    assert to_error_data(MemoryError())["details"] == {"reason": "out_of_memory"}
    full = to_error_data(OSError(28, "No space left on device"))
    assert full["code"] == "prerequisite" and full["details"] == {"reason": "disk_full"}
    assert to_error_data(PermissionError(13, "denied"))["code"] == "infrastructure"
    assert to_error_data(ValueError("x"))["code"] == "internal"
    assert to_error_data(KeyboardInterrupt())["code"] == "cancelled"
    try:
        raise TrainerError("conflict", "Taken.", {"path": "x"}) from ValueError("why")
    except TrainerError as error:
        assert to_error_data(error) == {"code": "conflict", "message": "Taken.", "details": {"path": "x"}, "cause": "why"}


# --- the process


def test_the_process_answers_garbage_and_goes_on(tmp_path: Any) -> None:
    missing = {"kind": "start", "order": wire_order(f"{tmp_path}/m", f"{tmp_path}/g", f"{tmp_path}/w", f"{tmp_path}/o")}
    # What nobody reads is padding of one over-long line, which must be skipped whole and not taken for commands.
    long_line = b'{"kind":"pause"}' * (MAX_LINE_BYTES // 16 + 2) + b"\n"
    with Sidecar() as sidecar:
        hello = sidecar.read("hello")
        assert hello["protocol"] == 1 and hello["pid"] == sidecar.pid and hello["capabilities"]["threads"] >= 1
        for line in (b"garbage\n", b"\xff\xfe\n", b"\n", b'{"kind":"resume"}\n', long_line, json.dumps(missing).encode() + b"\n"):
            sidecar.send_bytes(line)
        assert [sidecar.read("error")["error"]["code"] for _ in range(4)] == ["invalid_input"] * 3 + ["not_found"]
        assert sidecar.close() == 0
    assert [event["kind"] for event in sidecar.events] == ["hello"] + ["error"] * 4


def test_a_stop_reaches_no_order_that_comes_later(tmp_path: Any) -> None:
    missing = {"kind": "plan", "order": wire_order(f"{tmp_path}/m", f"{tmp_path}/g", f"{tmp_path}/w", f"{tmp_path}/o")}
    with Sidecar() as sidecar:
        sidecar.send("stop-now")
        sidecar.send("pause")
        for _ in range(2):
            sidecar.send_bytes(json.dumps(missing).encode() + b"\n")
            assert sidecar.read("error")["error"]["code"] == "not_found"


def test_a_wrong_order_file_says_what_is_wrong(tmp_path: Any) -> None:
    path = tmp_path / "order.json"
    path.write_text(json.dumps({**ORDER, "recipe": {}}))
    command = [sys.executable, "-m", "trainer", "train", "--order", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 2 and "order.recipe.rank is missing" in done.stderr and done.stdout == ""
