"""Learning rate by step, and when validation has risen for too long."""

from __future__ import annotations

import math

from .protocol import Recipe


def learning_rate(step: int, recipe: Recipe) -> float:
    """Steps count from 1. Linear warm-up that reaches the peak at step `warmup_steps`, then half a cosine down to
    final_share x peak at the last step (Loshchilov & Hutter 2017, one cycle)."""
    peak, warmup = recipe.learning_rate, min(recipe.warmup_steps, recipe.steps)
    if step <= warmup:
        return peak * step / warmup
    progress = (step - warmup) / (recipe.steps - warmup)
    return peak * (recipe.final_share + (1 - recipe.final_share) * 0.5 * (1 + math.cos(math.pi * progress)))


def rises(losses: list[float]) -> int:
    """How many times in a row the newest values each exceed the one before: [3, 2, 2.5, 2.6] -> 2."""
    count = 0
    for before, after in zip(losses[-2::-1], losses[:0:-1]):
        if after <= before:
            break
        count += 1
    return count
