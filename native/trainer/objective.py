"""The loss of one window: mean over its labelled tokens. With `weight`, gradients of weight x loss are accumulated."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from .base import text_stack
from .layers import Check, Keep, Pass
from .loss import cross_entropy


@dataclass(frozen=True)
class Example:
    """ids [T]; labels [n]: ascending positions in 1..T-1 whose own id is the target, predicted from the token before."""

    ids: torch.Tensor
    labels: torch.Tensor


def window_loss(
    network: nn.Module,
    example: Example,
    *,
    chunk: int,
    keep: Keep = Keep(),
    weight: float | None = None,
    dropout: bool = False,
    check: Check = lambda: None,
) -> float:
    """Sum of the labelled tokens' losses divided by their number, in natural units; needs at least one label."""
    device = text_stack(network).norm.weight.device
    count = len(example.labels)
    read = int(example.labels[-1])  # tokens from the last label on predict nothing that is trained
    ids, labels = example.ids[:read].to(device), example.labels.to(device)
    targets = example.ids[example.labels].to(device)
    run = Pass(network, keep, check, dropout)
    hidden = run.forward(ids, labels - 1, train=weight is not None)
    leaf = hidden.detach().requires_grad_(weight is not None)
    with torch.set_grad_enabled(weight is not None):
        normed = text_stack(network).norm(leaf)
    scale = None if weight is None else weight / count
    with torch.no_grad():
        total, grad = cross_entropy(normed.detach(), network.lm_head.weight, targets, chunk, scale)
    if grad is not None:
        normed.backward(grad)
        del normed, hidden
        run.backward(leaf.grad)
    return total / count
