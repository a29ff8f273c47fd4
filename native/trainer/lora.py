"""A frozen linear map with a low-rank update: y = x W^T + b + s (drop(x) A^T) B^T, s = alpha / rank (Hu et al. 2021).

The backward is written out, because autograd would keep the input once for W's path and once for A's, and peft adds a
copy in the adapter's number format. Kept here: the input, x A^T (rank wide), and with dropout one byte a value.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn


class LowRankLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        layer: "LoraLinear",
        a: torch.Tensor,
        b: torch.Tensor,
    ) -> torch.Tensor:
        """x [..., in], a [rank, in], b [out, rank] -> [..., out], in x's number format."""
        flat = x.reshape(-1, x.shape[-1])
        kept = None
        adapted = flat
        if layer.dropout and layer.training:
            adapted, kept = torch.native_dropout(flat, layer.dropout, True)
        narrow = adapted @ a.to(x.dtype).t()
        y = nn.functional.linear(flat, layer.weight, layer.bias)
        y.addmm_(narrow, b.to(x.dtype).t(), alpha=layer.scale)
        ctx.save_for_backward(flat, narrow, a, b, *(() if kept is None else (kept,)))
        ctx.layer, ctx.shape = layer, x.shape
        return y.view(*x.shape[:-1], y.shape[-1])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, None, torch.Tensor, torch.Tensor]:
        flat, narrow, a, b, *dropped = ctx.saved_tensors
        layer = ctx.layer
        grad = grad.reshape(-1, grad.shape[-1])
        grad_narrow = (grad @ b.to(grad.dtype)).mul_(layer.scale)
        grad_b = (grad.t() @ narrow).to(b.dtype).mul_(layer.scale)
        keep_scale = 1 / (1 - layer.dropout)
        adapted = flat * dropped[0] * keep_scale if dropped else flat
        grad_a = (grad_narrow.t() @ adapted).to(a.dtype)
        del adapted
        grad_x = None
        if ctx.needs_input_grad[0]:  # false below the first adapted layer
            grad_x = grad @ layer.weight
            if dropped:
                grad_x.add_((grad_narrow @ a.to(grad.dtype)).mul_(dropped[0]), alpha=keep_scale)
            else:
                grad_x.addmm_(grad_narrow, a.to(grad.dtype))
            grad_x = grad_x.view(ctx.shape)
        return grad_x, None, grad_a, grad_b


class LoraLinear(nn.Module):
    """Takes the place of an `nn.Linear`, whose weight and bias it shares. A is drawn as peft draws it
    (uniform, Kaiming with a = sqrt 5), B is zero: the adapted model begins as the base."""

    def __init__(self, linear: nn.Linear, rank: int, alpha: float, dropout: float) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.scale, self.dropout = alpha / rank, dropout
        device = linear.weight.device
        self.lora_a = nn.Parameter(torch.empty(rank, linear.in_features, device=device, dtype=torch.float32))
        self.lora_b = nn.Parameter(torch.zeros(linear.out_features, rank, device=device, dtype=torch.float32))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return LowRankLinear.apply(x, self, self.lora_a, self.lora_b)
