"""flash-linear-attention for hybrid models on CUDA: required, and its gradients checked before they are trusted.

transformers takes the kernels when the package can be imported and else falls back, without a failure, to a torch path
that is several times slower. Some pairs of GPU and compiler give wrong gradients, so both paths are compared on a small
shape at every start.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import nn

from .errors import TrainerError
from .machine import fast_kernels

Log = Callable[..., None]
TOLERANCE = 0.05  # relative, L2: bfloat16 keeps 8 bits, and a wrong kernel is wrong by far more


def is_hybrid(network: nn.Module) -> bool:
    return "linear_attention" in (getattr(network.config.get_text_config(), "layer_types", None) or [])


def require_fast(network: nn.Module, device: torch.device, allow_slow: bool, log: Log) -> None:
    if device.type != "cuda" or not is_hybrid(network):
        return
    if not fast_kernels():
        if not allow_slow:
            raise TrainerError(
                "prerequisite",
                "flash-linear-attention is not installed, and this hybrid model would train several times slower: "
                "run pip install flash-linear-attention in the trainer's environment, or set train.allowSlowKernels.",
            )
        log("warn", "Gated DeltaNet layers run on torch's slow path: flash-linear-attention is not installed.")
        return
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    worst = compare_gradients(chunk_gated_delta_rule, device, torch.bfloat16)
    if worst > TOLERANCE:
        message = f"flash-linear-attention's gradients are wrong on this card (relative error {worst:.3f})."
        raise TrainerError("prerequisite", f"{message} Uninstall it or change its version, then allow slow kernels.")
    log("info", "flash-linear-attention agrees with the torch path.", {"relativeError": worst})


def reference_delta_rule(*inputs: torch.Tensor) -> torch.Tensor:
    """The recurrence itself, a token at a time: S <- exp(g) S + k (beta (v - (exp(g) S)^T k))^T, o = S^T q / sqrt(d),
    with q and k of unit length (Yang et al. 2024, gated delta networks)."""
    q, k, v, g, beta = (x.float() for x in inputs)
    q, k = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q = q * q.shape[-1] ** -0.5
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], v.shape[3])
    outputs = []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        wrong = v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], wrong * beta[:, t, :, None])
        outputs.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outputs, 1)


def compare_gradients(kernel: Callable[..., Any], device: torch.device, dtype: torch.dtype) -> float:
    """Largest relative L2 difference of output and the five gradients between `kernel` and the recurrence, at batch 1,
    96 tokens (one and a half of its chunks), 2 heads of width 64. NaN counts as infinite."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(1, 96, 2, 64)] * 3 + [(1, 96, 2)] * 2
    q, k, v, g, beta = (torch.randn(shape, generator=generator) for shape in shapes)
    rounded = [x.to(dtype).float() for x in (q, k, v, beta.sigmoid())]  # both paths see the same numbers
    decay = -torch.nn.functional.softplus(g)  # float32 on both, as the model passes it
    weight = torch.randn(shapes[2], generator=generator).to(device)

    def run(function: Callable[..., Any], number: torch.dtype) -> list[torch.Tensor]:
        q, k, v, beta = (x.to(device, number) for x in rounded)
        inputs = [x.requires_grad_() for x in (q, k, v, decay.to(device).clone(), beta)]
        result = function(*inputs)
        output = result[0] if isinstance(result, tuple) else result
        (output.float() * weight).sum().backward()
        return [output.detach().float(), *(x.grad.float() for x in inputs)]

    def fast(*inputs: torch.Tensor) -> Any:
        q, k, v, g, beta = inputs
        return kernel(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)

    pairs = zip(run(fast, dtype), run(reference_delta_rule, torch.float32))
    errors = [float((a - b).norm() / b.norm()) for a, b in pairs]
    return max(e if e == e else float("inf") for e in errors)
