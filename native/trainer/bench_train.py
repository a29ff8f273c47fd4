"""Measures the trainer against a plain transformers + peft loop on the same windows, each in a process of its own.

    PYTHONPATH=native python -m trainer.bench_train [--steps 10] [--lengths 2048,2560,3072] [--plain padded|single]

Model: the shape of SmolLM2-135M with random weights, float32, no download. Both sides train LoRA (dropout 0) on all
attention and feed-forward maps from the same start with the same AdamW and the same windows. The plain side checkpoints
its layers, pads a step's windows to the longest (`single`: one window at a time, so nothing is padded) and computes all
logits. It must be in train mode: in evaluation mode, as `from_pretrained` returns a model, transformers checkpoints
nothing, without a word. Prints one JSON object: tokens per second (real tokens, padding not counted), peak memory in all
and above the loaded model, losses, and the ratios with what each is of.

Needs an otherwise idle machine for `speedup`; `cpuSpeedup` compares processor time and suffers less from others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
import zlib
from typing import Any

RANK, ALPHA, RATE, VOCABULARY = 16, 32.0, 1e-3, 49152
SHAPES = {
    "smollm2-135m": dict(hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9),
    "tiny": dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3),
}


RATIOS = {
    "speedup": "ours / plain: tokens of the windows, without padding, by seconds of whole optimizer steps",
    "cpuSpeedup": "plain / ours: processor seconds of the same steps, all threads",
    "peakRatio": "ours / plain: highest resident memory of the process, interpreter, libraries and model included",
    "aboveModelRatio": "ours / plain: the same less what was resident when the model stood loaded",
    "largestLossDifference": "largest difference of the two losses of a step, over all steps",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lengths", default="2048,2304,2560,2816,3072")
    parser.add_argument("--windows-per-step", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--shape", choices=list(SHAPES), default="smollm2-135m")
    parser.add_argument("--plain", choices=["padded", "single"], default="padded")
    parser.add_argument("--side", choices=["plain", "ours"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(measure(arguments)))
        return
    results = {side: run_side(side) for side in ("plain", "ours")}
    settings = {key: value for key, value in vars(arguments).items() if key != "side"}
    print(json.dumps({"kind": "train", "settings": settings, **results, **compare(**results), "ratios": RATIOS}))


def run_side(side: str) -> dict[str, Any]:
    """Ours takes large tensors from huge pages, as the trainer sets itself up at start; both wait without spinning, or
    other programs on the machine would slow the side with more small kernels."""
    from .__main__ import ALLOCATOR

    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **(ALLOCATOR if side == "ours" else {})}
    command = [sys.executable, "-m", "trainer.bench_train", *sys.argv[1:], "--side", side]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(plain: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    return {
        "speedup": ours["tokensPerSecond"] / plain["tokensPerSecond"],
        "cpuSpeedup": plain["cpuSeconds"] / ours["cpuSeconds"],
        "peakRatio": ours["peakBytes"] / plain["peakBytes"],
        "aboveModelRatio": ours["aboveModelBytes"] / plain["aboveModelBytes"],
        "largestLossDifference": max(abs(a - b) for a, b in zip(plain["losses"], ours["losses"])),
    }


def make_steps(arguments: argparse.Namespace) -> list[list[tuple[list[int], list[int]]]]:
    """Per step its windows: ids, and the positions that carry loss (30%, in runs as completions are)."""
    generator = random.Random(11)
    lengths = [int(n) for n in arguments.lengths.split(",")]
    steps = []
    for _ in range(arguments.steps):
        windows = []
        for _ in range(arguments.windows_per_step):
            length = generator.choice(lengths)
            ids = [generator.randrange(5, 2000) for _ in range(length)]
            labels = [i for i in range(1, length) if i % 200 >= 140 or i == length - 1]
            windows.append((ids, labels))
        steps.append(windows)
    return steps


def make_model(arguments: argparse.Namespace) -> Any:
    import torch
    import transformers

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(3)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        **SHAPES[arguments.shape],
    )
    return transformers.LlamaForCausalLM(config)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    from .machine import PeakMemory

    steps, network = make_steps(arguments), make_model(arguments)
    peak = PeakMemory(torch.device("cpu"))
    peak.reset()
    loaded = peak.read()
    step = (plain_side if arguments.side == "plain" else our_side)(network, arguments)
    losses, seconds, cpu = [], 0.0, 0.0
    for windows in steps:
        began, began_cpu = time.monotonic(), time.process_time()
        losses.append(step(windows))
        seconds, cpu = seconds + time.monotonic() - began, cpu + time.process_time() - began_cpu
    tokens = sum(len(ids) for windows in steps for ids, _ in windows)
    return {
        "tokens": tokens,
        "seconds": seconds,
        "cpuSeconds": cpu,
        "tokensPerSecond": tokens / seconds,
        "loadedBytes": loaded,
        "peakBytes": peak.read(),
        "aboveModelBytes": peak.read() - loaded,
        "losses": losses,
    }


def starting_a(name: str, shape: Any) -> Any:
    """The same first A on both sides, whatever order modules are made in; `name` holds layers.3.mlp.up_proj."""
    import torch

    module = name[name.index("layers.") :].split(".lora_A")[0]
    generator = torch.Generator().manual_seed(zlib.crc32(module.encode()))
    return (torch.rand(shape, generator=generator) * 2 - 1) / shape[1] ** 0.5


def plain_side(network: Any, arguments: argparse.Namespace) -> Any:
    import torch
    from peft import LoraConfig, get_peft_model

    from .targets import ATTENTION, FEED_FORWARD

    leaves = [name.split(".")[1] for name in (*ATTENTION, *FEED_FORWARD)]
    model = get_peft_model(network, LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=leaves))
    for name, parameter in model.named_parameters():
        if ".lora_A." in name:
            parameter.data.copy_(starting_a(name, parameter.shape))
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model.config.use_cache = False
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)

    def batch_loss(windows: list[Any]) -> Any:
        longest = max(len(ids) for ids, _ in windows)
        ids = torch.zeros(len(windows), longest, dtype=torch.long)
        mask, targets = torch.zeros_like(ids), torch.full_like(ids, -100)
        for row, (tokens, labels) in enumerate(windows):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
            targets[row, labels] = ids[row, labels]
        logits = model(input_ids=ids, attention_mask=mask).logits.float()
        rows = [
            torch.nn.functional.cross_entropy(logits[row, :-1], targets[row, 1:], ignore_index=-100)
            for row in range(len(windows))
        ]
        return torch.stack(rows).sum()

    def step(windows: list[Any]) -> float:
        total = 0.0
        for batch in [windows] if arguments.plain == "padded" else [[window] for window in windows]:
            loss = batch_loss(batch) / len(windows)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


def our_side(network: Any, arguments: argparse.Namespace) -> Any:
    import torch

    from . import memory
    from .objective import Example, window_loss
    from .protocol import Recipe
    from .targets import put_adapters

    recipe = Recipe(RANK, ALPHA, 0.0, 1, 1, RATE, 0, 1.0, (0.9, 0.95), 0.0, 1.0, 0.5, 1, 1, 0, 512, 1)
    adapters = put_adapters(network.eval(), recipe)
    for name, adapter in adapters.items():
        adapter.lora_a.data.copy_(starting_a(name, adapter.lora_a.shape))
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    room = memory.measure_room(network, torch.device("cpu"))

    def step(windows: list[Any]) -> float:
        losses = []
        for ids, labels in windows:
            example = Example(torch.tensor(ids), torch.tensor(labels))
            keep = memory.choose_keep(network, len(ids), room, recipe.loss_chunk)
            losses.append(window_loss(network, example, chunk=recipe.loss_chunk, keep=keep, weight=1 / len(windows)))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return sum(losses) / len(losses)

    return step


if __name__ == "__main__":
    if not __package__:  # started as a file: start again as a module
        native = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        os.environ["PYTHONPATH"] = native
        os.execv(sys.executable, [sys.executable, "-m", "trainer.bench_train", *sys.argv[1:]])
    main()
