"""Cross-entropy at the labelled positions, in chunks, with its gradient at once.

Logits of a whole window are never held: a chunk's logits become its gradient in place, are multiplied back to the
hidden states, and are gone. At a vocabulary of 248k and 8k labelled positions that is 0.5 GB instead of 8.
"""

from __future__ import annotations

import torch


def cross_entropy(
    hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, chunk: int, grad_scale: float | None
) -> tuple[float, torch.Tensor | None]:
    """hidden [n, width] after the last norm, head [vocabulary, width], targets [n].

    Returns the *sum* of -log softmax(hidden head^T)[target] over n, in natural units, and, when `grad_scale` is given,
    d(grad_scale * sum) / d hidden. Chunks are summed in float64, so the value depends little on their size.
    """
    grad = None if grad_scale is None else torch.empty_like(hidden)
    total = torch.zeros((), dtype=torch.float64, device=hidden.device)
    for start in range(0, hidden.shape[0], chunk):
        rows = slice(start, start + chunk)
        logits = (hidden[rows] @ head.t()).float()
        wanted = targets[rows, None]
        peak = logits.amax(1, keepdim=True)
        at_target = logits.gather(1, wanted) - peak
        probabilities = logits.sub_(peak).exp_()
        partition = probabilities.sum(1, keepdim=True)
        total += (partition.log() - at_target).double().sum()
        if grad is not None:
            probabilities.div_(partition)
            probabilities.scatter_add_(1, wanted, torch.full_like(at_target, -1.0))
            grad[rows] = probabilities.mul_(grad_scale).to(head.dtype) @ head
        del logits, probabilities
    return float(total), grad
