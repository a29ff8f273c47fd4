"""The GPU bench on the CPU: that it runs in both ways, finds the largest window, and has the model's real size."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from typing import Any

import pytest
import torch
import transformers

from trainer import bench_gpu
from trainer.testing.sidecar import NATIVE

FILE = f"{NATIVE}/trainer/bench_gpu.py"


def run(file: str, folder: Any, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, file, "--tiny", "--steps", "1", "--tokens", "64", "--most", "192", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_runs_with_the_trainer_and_alone(tmp_path: Any) -> None:
    beside, alone = run(FILE, tmp_path), run(shutil.copy(FILE, tmp_path), tmp_path)
    assert (beside["path"], alone["path"]) == ("trainer", "transformers and peft")
    for told in (beside, alone):
        assert [result["tokens"] for result in told["measured"]] == [64, 192] and told["largestWindow"] == 192
        assert all(result["tokensPerSecond"] > 0 and 0 < result["loss"] < 20 for result in told["measured"])
        assert told["layers"] == 4 and told["trainable"] == beside["trainable"] > 0 and told["matrixTflops"] > 0
    assert beside["measured"][0]["loss"] == pytest.approx(alone["measured"][0]["loss"], rel=0.01)


@pytest.mark.parametrize("truth", [8192, 9000, 20_000, 30_719, 30_720, 49_151, 49_152, 60_000])
def test_the_largest_window_is_found_to_a_thousand_tokens(truth: int) -> None:
    tried: list[int] = []

    def fits(length: int) -> bool:
        tried.append(length)
        return length <= truth

    far = time.monotonic() + 3600
    found = bench_gpu.largest_window(fits, known=8192, most=49_152, grain=1024, deadline=far)
    assert found <= truth and (found == 49_152 or found + 1024 > truth) and len(tried) <= 8
    assert bench_gpu.largest_window(fits, known=8192, most=49_152, grain=1024, deadline=0) == 8192


def test_a_window_without_memory_does_not_fit_and_other_failures_are_failures() -> None:
    def fail(error: BaseException) -> Any:
        def step(length: int) -> float:
            raise error

        return step

    cpu = torch.device("cpu")
    assert bench_gpu.try_window(lambda length: 1.0, 8, cpu) is True
    assert bench_gpu.try_window(fail(torch.OutOfMemoryError("CUDA out of memory")), 8, cpu) is False
    with pytest.raises(ValueError):
        bench_gpu.try_window(fail(ValueError("x")), 8, cpu)


def test_the_full_shape_is_the_27b() -> None:
    config = transformers.Qwen3_5TextConfig(**bench_gpu.FULL, tie_word_embeddings=False)
    assert config.layer_types.count("linear_attention") == 48 and config.layer_types[3] == "full_attention"
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config).requires_grad_(False)
    assert 26.5e9 < sum(p.numel() for p in network.parameters()) < 27.5e9
    costs = bench_gpu.Costs(network)
    # 6 operations per weight of the layers and token, and 16 layers of 24 heads of 256 that attend
    assert costs.frozen == pytest.approx(24.35e9, rel=0.01) and costs.attention == 16 * 24 * 256
    assert costs.of(8192) == pytest.approx(6 * costs.frozen * 8192, rel=0.08)  # attention and head are the rest
