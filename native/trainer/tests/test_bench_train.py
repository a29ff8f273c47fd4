"""The bench against a plain loop, small: both sides train the same, and ours holds less. Nothing is timed here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainer.testing.sidecar import ENVIRONMENT


@pytest.mark.parametrize("plain", ["padded", "single"])
def test_both_sides_lose_alike_and_ours_holds_less(plain: str) -> None:
    command = [sys.executable, "-m", "trainer.bench_train", "--shape", "tiny", "--steps", "10", "--lengths", "96,160"]
    done = subprocess.run([*command, "--plain", plain, "--threads", "1"], capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert len(told["ours"]["losses"]) == len(told["plain"]["losses"]) == 10
    assert told["largestLossDifference"] < 1e-4
    assert told["ours"]["losses"][-1] != told["ours"]["losses"][0]
    assert told["aboveModelRatio"] < 0.6  # logits of whole windows alone are more than twice ours
    assert set(told["ratios"]) == {"speedup", "cpuSpeedup", "peakRatio", "aboveModelRatio", "largestLossDifference"} <= set(told)
