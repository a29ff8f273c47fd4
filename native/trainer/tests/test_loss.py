"""The loss against formulas worked out by hand and against a plain cross-entropy over full logits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy as plain_cross_entropy

from trainer.base import load_model
from trainer.layers import Keep
from trainer.loss import cross_entropy
from trainer.objective import Example, window_loss
from trainer.protocol import Base, Model

CPU = torch.device("cpu")


def test_worked_values() -> None:
    """Logits ln 1, ln 2, ln 3, ln 4: probabilities .1 .2 .3 .4; the gradient of a row is (p - onehot) W."""
    head = torch.tensor([[math.log(n)] for n in (1, 2, 3, 4)])
    hidden = torch.tensor([[1.0], [0.0]])  # the second row is uniform: .25 each
    total, grad = cross_entropy(hidden, head, torch.tensor([1, 3]), chunk=1, grad_scale=0.5)
    assert total == pytest.approx(-math.log(0.2) - math.log(0.25), abs=1e-6)
    log = [math.log(n) for n in (1, 2, 3, 4)]
    first = sum(p * w for p, w in zip((0.1, -0.8, 0.3, 0.4), log))
    second = sum(p * w for p, w in zip((0.25, 0.25, 0.25, -0.75), log))
    assert grad is not None
    torch.testing.assert_close(grad, 0.5 * torch.tensor([[first], [second]]))


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_chunks_of_any_size_equal_the_plain_loss_and_gradient(chunk: int) -> None:
    torch.manual_seed(1)
    hidden, head = torch.randn(65, 24), torch.randn(300, 24)
    targets = torch.randint(300, (65,))
    leaf = hidden.clone().requires_grad_()
    expected = plain_cross_entropy(leaf @ head.t(), targets, reduction="sum")
    (expected * 0.3).backward()
    total, grad = cross_entropy(hidden, head, targets, chunk, 0.3)
    assert total == pytest.approx(float(expected.detach()), rel=1e-6)
    torch.testing.assert_close(grad, leaf.grad, rtol=1e-5, atol=1e-6)
    assert cross_entropy(hidden, head, targets, chunk, None) == (pytest.approx(total, rel=1e-12), None)


def test_huge_logits_stay_finite() -> None:
    total, grad = cross_entropy(torch.tensor([[1e4]]), torch.tensor([[1.0], [-1.0]]), torch.tensor([0]), 8, 1.0)
    assert total == 0 and grad is not None and bool(torch.isfinite(grad).all())


@pytest.fixture(scope="module")
def network(model_folder: Any) -> Any:
    return load_model(Model(Base("folder", model_folder("llama")), []), CPU, torch.float32)


def plain_loss(network: Any, example: Example) -> float:
    """Mean over labelled tokens, each predicted from the token before it: the usual shift by one."""
    targets = torch.full_like(example.ids, -100)
    targets[example.labels] = example.ids[example.labels]
    with torch.no_grad():
        logits = network(input_ids=example.ids[None]).logits[0]
    return float(plain_cross_entropy(logits[:-1], targets[1:], ignore_index=-100))


LABELS = {"some": [5, 6, 7, 20, 38], "the first that can be": [1], "the last": [39], "all": list(range(1, 40))}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS.keys())
@pytest.mark.parametrize("tile", [1, 16, 1024])
def test_a_windows_loss_is_the_mean_over_its_labelled_tokens(network: Any, labels: list[int], tile: int) -> None:
    ids = torch.randint(5, 400, (40,), generator=torch.Generator().manual_seed(2))
    example = Example(ids, torch.tensor(labels))
    loss = window_loss(network, example, chunk=3, keep=Keep(tile=tile))
    assert loss == pytest.approx(plain_loss(network, example), abs=2e-5)


def test_tokens_after_the_last_label_change_nothing(network: Any) -> None:
    ids = torch.arange(10, 50)
    other = torch.cat([ids[:31], torch.arange(200, 209)])
    labels = torch.tensor([12, 30])
    assert window_loss(network, Example(ids, labels), chunk=8) == window_loss(network, Example(other, labels), chunk=8)
    other[11] = 400
    assert window_loss(network, Example(ids, labels), chunk=8) != window_loss(network, Example(other, labels), chunk=8)
