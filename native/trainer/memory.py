"""What training will need, before it starts; and how much of a window's forward can be kept, while it runs."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from .base import FAMILIES, load_config, refuse_inexact, text_stack
from .commands import Emit
from .control import Control
from .errors import TrainerError
from .gguf_file import GgufHeader
from .layers import Keep
from .machine import choose_device, choose_dtype, fast_kernels, free_bytes, set_threads
from .protocol import Recipe, TrainOrder
from .sampler import Sampler
from .targets import FEED_FORWARD, expected_count, put_adapters
from .windows import Window, WindowSet

TILE = 1024
SLACK = 1.15  # allocator rounding and fragmentation
EFFICIENCY = 0.5  # share of a bare matrix product's rate that a whole step reaches
SHARE_OF_FREE = {"cuda": 0.9}  # of what is free once the weights are there; elsewhere half: the machine is shared
CHUNK_ROWS = 64  # tokens per chunk of gated DeltaNet


@dataclass(frozen=True)
class Shape:
    """Bytes per token of what a layer's backward reads, by half; widths in numbers, not bytes."""

    layers: int
    width: int
    feed_forward: int
    mixer: int  # numbers kept per token by the widest mixer
    item: int  # bytes of a number

    @property
    def input_bytes(self) -> int:
        return self.width * self.item

    @property
    def mixer_bytes(self) -> int:
        return self.mixer * self.item

    @property
    def feed_forward_bytes(self) -> int:
        """Input, normed input; gate, its activation, up, their product."""
        return (2 * self.width + 4 * self.feed_forward) * self.item


@dataclass(frozen=True)
class Room:
    """Bytes that all activations of a window may take, and of them those kept only to save time. Fixed when a run
    begins and carried through its checkpoints: tiles and whole windows sum in another order, so that a resumed run
    must keep alike."""

    activations: int
    recordings: int


def shape_of(config: Any, item: int, fast: bool) -> Shape:
    """`config`: text configuration; `fast`: flash-linear-attention runs. Attention keeps the normed input, query, key
    and value (repeated for every query head), output and residual. Gated DeltaNet keeps, on the torch path, about three
    float32 copies of its convolved inputs and six 64-wide rows of chunk matrices per head; with the kernels the inputs
    before and after the convolution, query and key repeated and normed, the output thrice and a state per chunk."""
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    mixer = 2 * config.hidden_size + 5 * config.num_attention_heads * head
    if "linear_attention" in (getattr(config, "layer_types", None) or []):
        heads = config.linear_num_value_heads
        key, value = config.linear_key_head_dim * heads, config.linear_value_head_dim * heads  # repeated for each
        convolved = 2 * config.linear_key_head_dim * config.linear_num_key_heads + value
        if fast:
            numbers = 2 * convolved + 4 * key + 5 * value + value * config.linear_key_head_dim // CHUNK_ROWS
        else:
            numbers = (10 * key + 8 * value + 6 * CHUNK_ROWS * heads) * 4 // item
        mixer = max(mixer, 2 * config.hidden_size + numbers)
    return Shape(config.num_hidden_layers, config.hidden_size, config.intermediate_size, mixer, item)


def working_bytes(shape: Shape, vocabulary: int, length: int, chunk: int, *, offload: bool) -> int:
    """Peak beside weights and adapters when nothing but layer inputs is kept: those (with `offload`, few at a time),
    one mixer recorded with the gradients that flow back through it, a tile of a feed-forward half likewise, and a chunk
    of logits (float32, twice)."""
    inputs = (4 if offload else shape.layers + 4) * length * shape.input_bytes
    mixer = 2 * length * shape.mixer_bytes
    tile = 2 * min(TILE, length) * shape.feed_forward_bytes
    return inputs + max(mixer, tile) + 2 * chunk * vocabulary * 4


def measure_room(network: nn.Module, device: torch.device) -> Room:
    """To be called when weights and adapters are loaded, and gradients and optimizer state are not there yet."""
    weights = sum(p.numel() * p.element_size() for p in network.parameters() if not p.requires_grad)
    to_come = sum(3 * p.numel() * p.element_size() for p in network.parameters() if p.requires_grad)
    activations = max(0, int(free_bytes(device) * SHARE_OF_FREE.get(device.type, 0.5)) - to_come)
    return Room(activations, min(weights, activations))


def choose_keep(network: nn.Module, length: int, room: Room, chunk: int) -> Keep:
    """Mixers first: for each byte they cost more to compute again. Then feed-forward halves. Layer inputs wait in main
    memory when not even they would fit on the card."""
    weight = text_stack(network).layers[0].input_layernorm.weight
    config = network.config.get_text_config()
    shape = shape_of(config, weight.element_size(), weight.is_cuda and fast_kernels())
    spare = room.activations - working_bytes(shape, config.vocab_size, length, chunk, offload=False)
    offload = spare < 0
    if offload:
        spare = room.activations - working_bytes(shape, config.vocab_size, length, chunk, offload=True)
    spare = max(0, min(spare, room.recordings))
    mixers = min(shape.layers, spare // (length * shape.mixer_bytes))
    spare -= mixers * length * shape.mixer_bytes
    feed_forwards = min(shape.layers, spare // (length * shape.feed_forward_bytes)) if mixers == shape.layers else 0
    return Keep(mixers, feed_forwards, TILE, offload)


def plan_command(order: TrainOrder, emit: Emit, control: Control) -> None:
    emit({"kind": "plan", "plan": plan(order)})


def plan(order: TrainOrder) -> dict[str, Any]:
    """The protocol's TrainingPlan. Reads configurations and window records, no weights."""
    device = choose_device(order.machine)
    set_threads(order.machine)
    dtype = choose_dtype(device)
    windows = WindowSet(order.windows)
    network = skeleton(order)
    config = network.config.get_text_config()
    adapters = put_adapters(network, order.recipe)
    frozen = sum(p.numel() for p in network.parameters() if not p.requires_grad)
    trainable = sum(p.numel() for p in network.parameters() if p.requires_grad)
    item = torch.empty((), dtype=dtype).element_size()
    cuda = device.type == "cuda"
    shape = shape_of(config, item, cuda and fast_kernels())
    longest = max(window.length for window in windows.windows)
    working = working_bytes(shape, config.vocab_size, longest, order.recipe.loss_chunk, offload=cuda)
    weights_bytes, adapter_bytes = frozen * item, trainable * 16  # float32: weight, gradient, two moments
    # transformers turns a whole GGUF into float32 before it fills the model; measured 1.75 times the weights.
    loading = 8 * frozen if order.model.base.kind == "gguf" and not cuda else 0
    needed = int(max(loading, weights_bytes + adapter_bytes + working) * SLACK)
    free = free_bytes(device)
    operations = count_operations(network, windows, order.recipe)
    rate = matrix_rate(device, dtype, config.hidden_size, config.intermediate_size)
    return {
        "parameters": frozen,
        "trainable": trainable,
        "adaptedModules": len(adapters),
        "longestWindow": longest,
        "weightsBytes": weights_bytes,
        "adapterBytes": adapter_bytes,
        "activationsBytes": working,
        "neededBytes": needed,
        "freeBytes": free,
        "fits": needed <= free,
        "floatingPointOperations": operations,
        "hours": operations / (rate * EFFICIENCY) / 3600,
        "assumption": f"{EFFICIENCY:.0%} of the {rate / 1e12:.3g} TFLOP/s that a plain matrix product reached on {device.type} now",
    }


def skeleton(order: TrainOrder) -> nn.Module:
    """The model without weights: every tensor on torch's meta device."""
    config, model_class = load_config(order.model.base)
    if config.get_text_config().model_type not in FAMILIES:
        expected_count(config.get_text_config())
    with torch.device("meta"):
        return model_class._from_config(config) if hasattr(model_class, "_from_config") else model_class.from_config(config)


def count_operations(network: nn.Module, windows: WindowSet, recipe: Recipe) -> float:
    """Multiplications and additions of the whole run.

    A token costs 2 per weight forward, again when computed again, and once more for the gradient of its input: 6; an
    adapter's weight has a gradient, too: 8. Causal attention adds 2 T h per token (two products, half the square),
    forward twice and backward 2.5 times. The head costs 2 per weight at labelled positions, and its input's gradient
    as much. Norms, convolutions and the chunk products of gated DeltaNet are a few per cent and left out."""
    config = network.config.get_text_config()
    stack = text_stack(network)
    frozen, adapters = (
        sum(p.numel() for p in stack.layers.parameters() if p.dim() == 2 and p.requires_grad == trained)
        for trained in (False, True)
    )
    heads = config.num_attention_heads * (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    attending = config.num_hidden_layers - (getattr(config, "layer_types", None) or []).count("linear_attention")
    head = config.vocab_size * config.hidden_size

    def attention(length: int) -> int:
        return 2 * attending * heads * length**2

    def cost_of_training(w: Window) -> float:
        return (6 * frozen + 8 * adapters) * w.length + 4.5 * attention(w.length) + 4 * head * w.labels

    def cost_of_validation(w: Window) -> float:
        return 2 * (frozen + adapters) * w.length + attention(w.length) + 2 * head * w.labels

    train = Sampler(windows.split("train"), recipe.orchestrator_share, recipe.seed).probabilities()
    by_index = {window.index: window for window in windows.windows}
    per_draw = sum(p * cost_of_training(by_index[i]) for i, p in train.items())
    once = sum(cost_of_validation(w) for w in windows.split("validate"))
    validations = 1 + math.ceil(recipe.steps / recipe.validate_every)
    return recipe.steps * recipe.windows_per_step * per_draw + validations * once


def matrix_rate(device: torch.device, dtype: torch.dtype, width: int, feed_forward: int) -> float:
    """Operations per second of a [1024, width] x [width, feed_forward] product, best of three rounds of 0.1 s."""
    a = torch.randn(1024, width, device=device, dtype=dtype)
    b = torch.randn(width, feed_forward, device=device, dtype=dtype)
    best = 0.0
    for _ in range(3):
        began, count = time.monotonic(), 0
        while time.monotonic() - began < 0.1:
            a @ b
            if device.type == "cuda":
                torch.cuda.synchronize()
            count += 1
        best = max(best, 2 * 1024 * width * feed_forward * count / (time.monotonic() - began))
    return best
