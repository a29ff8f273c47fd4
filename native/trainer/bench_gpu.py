"""Measures one LoRA step of a model with Qwen3.6-27B's shapes and random weights on a GPU: no download.

    python bench_gpu.py                 the 27B in bfloat16 (54 GB of weights), rank 64, under ten minutes
    python bench_gpu.py --layers 16     a quarter of its layers, for smaller cards
    python bench_gpu.py --tiny          the same path with a tiny model on the CPU, to see that it runs

Needs torch, transformers and peft; flash-linear-attention when installed. With the trainer beside it, its lean layers
train; alone, transformers and peft with checkpointed layers do. Prints lines for people on standard error and one JSON
object on standard output: a step at 8k tokens and at the largest window that fits, tokens per second, peak memory, and the
share of the card's matrix rate, which is measured with a bfloat16 product first.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import sys
import time
from typing import Any, Callable

import torch
import transformers

FULL = dict(
    vocab_size=248_320, hidden_size=5120, intermediate_size=17_408, num_hidden_layers=64, num_attention_heads=24,
    num_key_value_heads=4, head_dim=256, linear_key_head_dim=128, linear_value_head_dim=128, linear_num_key_heads=16,
    linear_num_value_heads=48,
)  # fmt: skip
TINY = dict(
    vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2,
    linear_num_value_heads=4,
)  # fmt: skip
TARGETS = "q_proj k_proj v_proj o_proj in_proj_qkv in_proj_z out_proj gate_proj up_proj down_proj".split()
LABELLED = 0.35  # share of a window's tokens that carry loss
CHUNK = 512  # labelled positions whose logits exist at a time
Step = Callable[[int], float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--layers", type=int, help="of 64; every fourth attends")
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--tokens", type=int, help="of the first measurement (8192; tiny: 128)")
    parser.add_argument("--most", type=int, help="longest window tried (49152; tiny: 512)")
    parser.add_argument("--steps", type=int, default=3, help="timed, after one that warms up")
    parser.add_argument("--minutes", type=float, default=8.0, help="no further window is tried after this")
    parser.add_argument("--plain", action="store_true", help="transformers and peft even when the trainer is there")
    arguments = parser.parse_args()
    if not (arguments.tiny or torch.cuda.is_available()):
        parser.error("no CUDA device can be used; --tiny runs on the CPU")
    deadline = time.monotonic() + arguments.minutes * 60
    device = torch.device("cpu" if arguments.tiny else "cuda")
    tokens = arguments.tokens or (128 if arguments.tiny else 8192)
    most = arguments.most or (512 if arguments.tiny else 49_152)

    rate = matrix_rate(device, arguments.tiny)
    say(f"matrix products: {rate / 1e12:.1f} TFLOP/s")
    network = make_model(arguments, device)
    parameters = sum(p.numel() for p in network.parameters())
    say(f"{parameters / 1e9:.2f}e9 parameters in memory")
    lean = not arguments.plain and trainer_is_there()
    step = (lean_step if lean else plain_step)(network, arguments.rank, device)
    costs = Costs(network)

    grain = 64 if arguments.tiny else 1024

    def fits(length: int) -> bool:
        return try_window(step, length, device)

    while not fits(tokens):
        tokens //= 2
        if tokens < grain:
            raise SystemExit(f"Not even {grain} tokens fit: try a smaller --layers or --rank.")
    results = [measure(step, costs, tokens, rate=rate, device=device, times=arguments.steps)]
    largest = largest_window(fits, known=tokens, most=most, grain=grain, deadline=deadline)
    if largest > tokens:
        results.append(measure(step, costs, largest, rate=rate, device=device, times=1))
    print(json.dumps({**describe(device, network, lean), "rank": arguments.rank, "matrixTflops": rate / 1e12,
                      "measured": results, "largestWindow": largest, "mostTried": most}))  # fmt: skip


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def describe(device: torch.device, network: Any, lean: bool) -> dict[str, Any]:
    fast = device.type == "cuda" and importlib.util.find_spec("fla") is not None
    found: dict[str, Any] = {
        "kind": "train-gpu",
        "device": torch.cuda.get_device_name(0) if device.type == "cuda" else "cpu",
        "deviceBytes": torch.cuda.get_device_properties(0).total_memory if device.type == "cuda" else None,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "layers": network.config.num_hidden_layers,
        "parameters": sum(p.numel() for p in network.parameters() if not p.requires_grad),
        "trainable": sum(p.numel() for p in network.parameters() if p.requires_grad),
        "path": "trainer" if lean else "transformers and peft",
        "fastKernels": fast,
    }
    if fast and lean:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from trainer.delta_kernels import compare_gradients

        found["kernelError"] = compare_gradients(chunk_gated_delta_rule, device, torch.bfloat16)
    return found


def make_model(arguments: argparse.Namespace, device: torch.device) -> Any:
    shape = dict(TINY if arguments.tiny else FULL)
    if arguments.layers:
        shape["num_hidden_layers"] = arguments.layers
    config = transformers.Qwen3_5TextConfig(**shape, tie_word_embeddings=False)
    torch.manual_seed(1)
    with device:
        network = transformers.AutoModelForCausalLM.from_config(
            config, dtype=torch.float32 if arguments.tiny else torch.bfloat16, attn_implementation="sdpa"
        )
    return network.requires_grad_(False)


def trainer_is_there() -> bool:
    """Started as a file, Python looks for packages beside it: that place holds the trainer's parts, not the trainer."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path = [path for path in sys.path if os.path.abspath(path) != here]
    if os.path.basename(here) == "trainer":
        sys.path.insert(0, os.path.dirname(here))
    try:
        import trainer.objective  # noqa: F401
    except ImportError:
        return False
    return True


def window(length: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """ids [length], and the labelled positions, in runs as completions are."""
    ids = torch.randint(5, vocabulary, (length,), generator=torch.Generator().manual_seed(length))
    labels = torch.arange(1, length)
    return ids, labels[labels % 64 >= 64 * (1 - LABELLED)]


def lean_step(network: Any, rank: int, device: torch.device) -> Step:
    from trainer import memory
    from trainer.objective import Example, window_loss
    from trainer.protocol import Recipe
    from trainer.targets import put_adapters

    recipe = Recipe(rank, 2.0 * rank, 0.0, 1, 1, 3e-5, 0, 1.0, (0.9, 0.95), 0.0, 1.0, 0.5, 1, 1, 0, CHUNK, 1)
    put_adapters(network.eval(), recipe)
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=3e-5, betas=(0.9, 0.95), weight_decay=0.0, foreach=False)
    room = memory.measure_room(network, device)

    def step(length: int) -> float:
        optimizer.zero_grad(set_to_none=True)  # a step that ran out of memory left some
        keep = memory.choose_keep(network, length, room, CHUNK)
        example = Example(*window(length, network.config.vocab_size))
        loss = window_loss(network, example, chunk=CHUNK, keep=keep, weight=1.0)
        return finish(loss, parameters, optimizer)

    return step


def plain_step(network: Any, rank: int, device: torch.device) -> Step:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(network, LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules=TARGETS))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model.train()  # in evaluation mode no layer is checkpointed
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=3e-5, betas=(0.9, 0.95), weight_decay=0.0, foreach=False)

    def chunk_loss(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(network.lm_head(hidden).float(), targets, reduction="sum")

    def step(length: int) -> float:
        optimizer.zero_grad(set_to_none=True)
        ids, labels = (part.to(device) for part in window(length, network.config.vocab_size))
        hidden = network.model(input_ids=ids[None], use_cache=False).last_hidden_state[0, labels - 1]
        total = torch.zeros((), device=device)
        for rows in torch.arange(len(labels)).split(CHUNK):
            rows = slice(int(rows[0]), int(rows[-1]) + 1)
            total = total + torch.utils.checkpoint.checkpoint(
                chunk_loss, hidden[rows], ids[labels[rows]], use_reentrant=False
            )
        loss = total / len(labels)
        loss.backward()
        return finish(float(loss.detach()), parameters, optimizer)

    return step


def finish(loss: float, parameters: list[Any], optimizer: torch.optim.Optimizer) -> float:
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


class Costs:
    """Operations of one training window: 6 per frozen weight and token (forward, again, gradient of the input), 8 per
    adapter's, causal attention 2 T^2 h a layer 4.5 times, the head 4 per weight and labelled token."""

    def __init__(self, network: Any) -> None:
        config = network.config
        layers = [p for name, p in network.named_parameters() if ".layers." in name and p.dim() == 2]
        self.frozen = sum(p.numel() for p in layers if not p.requires_grad)
        self.adapters = sum(p.numel() for p in layers if p.requires_grad)
        attending = config.num_hidden_layers - config.layer_types.count("linear_attention")
        self.attention = attending * config.num_attention_heads * config.head_dim
        self.head, self.vocabulary = config.vocab_size * config.hidden_size, config.vocab_size

    def of(self, length: int) -> float:
        labels = len(window(length, self.vocabulary)[1])
        attention = 4.5 * 2 * self.attention * length**2
        return (6 * self.frozen + 8 * self.adapters) * length + attention + 4 * self.head * labels


def measure(step: Step, costs: Costs, length: int, *, rate: float, device: torch.device, times: int) -> dict[str, Any]:
    loss = step(length)  # kernels are compiled and chosen by shape in the first
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(times):
        loss = step(length)
    if cuda:
        torch.cuda.synchronize()
    seconds = (time.monotonic() - began) / times
    operations = costs.of(length) / seconds
    result = {
        "tokens": length,
        "seconds": seconds,
        "tokensPerSecond": length / seconds,
        "peakBytes": torch.cuda.max_memory_allocated() if cuda else None,
        "tflops": operations / 1e12,
        "shareOfMatrixRate": operations / rate,
        "loss": loss,
    }
    say(f"{length} tokens: {seconds:.2f} s, {length / seconds:.0f} tokens/s, {operations / rate:.0%} of the matrix rate")
    return result


def try_window(step: Step, length: int, device: torch.device) -> bool:
    fit = True
    try:
        step(length)
    except torch.OutOfMemoryError:
        fit = False
    gc.collect()  # after the exception is gone: it holds the frames, and they the tensors
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return fit


def largest_window(fits: Callable[[int], bool], *, known: int, most: int, grain: int, deadline: float) -> int:
    """The longest window in (known, most] that fits, to `grain` tokens, or `known`: the longest first, then halving. Ends
    early at `deadline` with the longest that did fit."""
    low, high = known, most + grain
    if time.monotonic() < deadline and most > known and fits(most):
        return most
    while high - low > grain and time.monotonic() < deadline:
        middle = (low + high) // 2 // grain * grain
        if middle <= low:
            break
        fit = fits(middle)
        say(f"{middle} tokens {'fit' if fit else 'do not fit'}")
        low, high = (middle, high) if fit else (low, middle)
    return low


def matrix_rate(device: torch.device, tiny: bool) -> float:
    """Operations per second of a large product in the number format of training, best of five."""
    rows, inner, columns = (256, 256, 256) if tiny else (8192, 5120, 17_408)
    dtype = torch.float32 if tiny else torch.bfloat16
    a = torch.randn(rows, inner, device=device, dtype=dtype)
    b = torch.randn(inner, columns, device=device, dtype=dtype)
    best = 0.0
    for _ in range(6):  # the first warms up
        began = time.monotonic()
        for _ in range(10):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = max(best, 20 * rows * inner * columns / (time.monotonic() - began))
    return best


if __name__ == "__main__":
    main()
