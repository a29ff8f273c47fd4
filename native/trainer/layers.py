"""Forward and backward through the decoder layers by hand, so that it is known what is kept and what is computed again.

A layer is two halves: a *mixer* (norm, attention or gated DeltaNet, residual), which looks along the sequence, and a
*feed-forward* half (norm, MLP, residual), which treats every token alone. The forward runs without recording and keeps
each layer's input; the backward takes the layers from the last to the first, records one half at a time, and runs the
feed-forward half in tiles of tokens. Nothing is computed more than twice, and a layer's widest intermediates never
exist for the whole window. Mixers whose recordings fit the memory budget are recorded at once and computed only once;
then, while there is room, so are feed-forward halves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

import torch
from torch import nn

from .base import text_stack

Check = Callable[[], None]


@dataclass(frozen=True)
class Keep:
    """How many of the last layers keep what they computed. The last layers' recordings live shortest."""

    mixers: int = 0
    feed_forwards: int = 0
    tile: int = 1024  # tokens per tile of a feed-forward half
    offload: bool = False  # layer inputs wait in main memory (CUDA)


def mixer_half(layer: nn.Module, x: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """x [1, T, width] -> [1, T, width]."""
    h = layer.input_layernorm(x)
    if hasattr(layer, "linear_attn"):
        h = layer.linear_attn(hidden_states=h, attention_mask=inputs.get("attention_mask"))
    else:
        h, _ = layer.self_attn(hidden_states=h, **inputs)
    if hasattr(layer, "pre_feedforward_layernorm"):  # gemma3 norms what a half adds, too
        h = layer.post_attention_layernorm(h)
    return x + h


def feed_forward_half(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    if hasattr(layer, "pre_feedforward_layernorm"):
        return x + layer.post_feedforward_layernorm(layer.mlp(layer.pre_feedforward_layernorm(x)))
    return x + layer.mlp(layer.post_attention_layernorm(x))


class _Recorder(nn.Module):
    """Stands in for a layer to learn what the model hands to it."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: dict[str, Any] = {}

    def forward(self, hidden_states: torch.Tensor, **inputs: Any) -> torch.Tensor:
        self.inputs = inputs
        return hidden_states


def embed(network: nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor, list[dict[str, Any]]]:
    """Embeddings [1, T, width], and for each layer the mask and rotary tables the family's own model code prepares."""
    stack = text_stack(network)
    layers, norm = stack.layers, stack.norm
    recorders = nn.ModuleList(_Recorder() for _ in layers)
    stack.layers, stack.norm = recorders, nn.Identity()
    try:
        with torch.no_grad():
            x = stack(input_ids=ids[None], use_cache=False).last_hidden_state
    finally:
        stack.layers, stack.norm = layers, norm
    unused = ("past_key_values", "use_cache")
    return x, [{k: v for k, v in r.inputs.items() if k not in unused} for r in recorders]


@dataclass
class _Layer:
    """What the backward needs of one layer."""

    x: torch.Tensor  # input; in main memory when offloaded
    random: "_Random"
    middle: torch.Tensor | None = None  # recorded output of the mixer half
    leaf: torch.Tensor | None = None  # input of a recorded feed-forward half
    out: torch.Tensor | None = None  # its recorded output


class _Random:
    """State of the generator that draws dropout, so that a half computed again drops the same values."""

    def __init__(self, device: torch.device, needed: bool) -> None:
        self._device, self._needed = device, needed
        self._states: list[torch.Tensor] = []

    def mark(self) -> None:
        if self._needed:
            self._states.append(_random_state(self._device))

    def replay(self, index: int) -> None:
        if self._needed:
            _set_random_state(self._device, self._states[index])


def _random_state(device: torch.device) -> torch.Tensor:
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.mps.get_rng_state() if device.type == "mps" else torch.get_rng_state()


def _set_random_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    elif device.type == "mps":
        torch.mps.set_rng_state(state)
    else:
        torch.set_rng_state(state)


@dataclass
class Pass:
    """One window's way through the layers: `forward`, then `backward` with the gradient of what it returned."""

    network: nn.Module
    keep: Keep = field(default_factory=Keep)
    check: Check = lambda: None
    dropout: bool = False
    _kept: list[_Layer] = field(default_factory=list)
    _inputs: list[dict[str, Any]] = field(default_factory=list)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, train: bool) -> torch.Tensor:
        """ids [T] -> hidden states [n, width] at `positions`, before the final norm. With `train`, keeps what
        `backward` needs. The last feed-forward half runs at `positions` only: nothing else is read from it."""
        layers = text_stack(self.network).layers
        x, self._inputs = embed(self.network, ids)
        self._positions, self._kept = positions, []
        count = len(layers)
        for index, layer in enumerate(layers):
            self.check()
            self._layer = index
            kept = _Layer(self._park(x) if train else x, _Random(x.device, self.dropout and train))
            record_mixer = train and index >= count - self.keep.mixers
            record_rest = train and index >= count - self.keep.feed_forwards
            x = self._forward_layer(layer, x, kept, record_mixer, record_rest)
            if train:
                self._kept.append(kept)
        return x[0]

    def _forward_layer(
        self, layer: nn.Module, x: torch.Tensor, kept: _Layer, record_mixer: bool, record_rest: bool
    ) -> torch.Tensor:
        kept.random.mark()
        with torch.set_grad_enabled(record_mixer):
            if record_mixer:
                x = kept.x = x.detach().requires_grad_(self._layer > 0)
            middle = mixer_half(layer, x, self._inputs[self._layer])
        if record_mixer:
            kept.middle = middle
        middle = self._select(middle.detach())
        kept.random.mark()
        if record_rest:
            with torch.enable_grad():
                kept.leaf = middle.requires_grad_()
                kept.out = feed_forward_half(layer, kept.leaf)
            return kept.out.detach()
        with torch.no_grad():
            if middle.shape[1] <= self.keep.tile:
                return feed_forward_half(layer, middle)
            out = torch.empty_like(middle)
            for rows in self._tiles(middle):
                out[:, rows] = feed_forward_half(layer, middle[:, rows])
            return out

    def backward(self, grad: torch.Tensor) -> None:
        """grad [n, width]: gradients of all adapters are added to their `.grad`; the embeddings are frozen."""
        layers = text_stack(self.network).layers
        after = _random_state(grad.device)
        grad = grad[None]
        for index in reversed(range(len(layers))):
            self.check()
            self._layer = index
            grad = self._backward_layer(layers[index], self._kept.pop(), grad)
        _set_random_state(grad.device, after)

    def _backward_layer(self, layer: nn.Module, kept: _Layer, grad: torch.Tensor) -> torch.Tensor:
        middle, x = kept.middle, kept.x
        if middle is None:
            x = self._fetch(kept.x).detach().requires_grad_(self._layer > 0)
            kept.random.replay(0)
            with torch.enable_grad():
                middle = mixer_half(layer, x, self._inputs[self._layer])
        if kept.out is not None:
            kept.out.backward(grad)
            grad = kept.leaf.grad
            kept.out = kept.leaf = None
        else:
            grad = self._backward_tiles(layer, kept, self._select(middle.detach()), grad)
        if self._layer == len(self._inputs) - 1:
            whole = torch.zeros_like(middle)
            whole[:, self._positions] = grad
            grad = whole
        middle.backward(grad)
        return x.grad if x.grad is not None else grad

    def _backward_tiles(
        self, layer: nn.Module, kept: _Layer, middle: torch.Tensor, grad: torch.Tensor
    ) -> torch.Tensor:
        kept.random.replay(1)
        out = torch.empty_like(middle)
        for rows in self._tiles(middle):
            leaf = middle[:, rows].requires_grad_()
            with torch.enable_grad():
                tile = feed_forward_half(layer, leaf)
            tile.backward(grad[:, rows])
            out[:, rows] = leaf.grad
        return out

    def _tiles(self, x: torch.Tensor) -> list[slice]:
        step = self.keep.tile
        return [slice(start, start + step) for start in range(0, x.shape[1], step)]

    def _select(self, middle: torch.Tensor) -> torch.Tensor:
        return middle[:, self._positions] if self._layer == len(self._inputs) - 1 else middle

    def _park(self, x: torch.Tensor) -> torch.Tensor:
        if not (self.keep.offload and x.device.type == "cuda"):
            return x
        host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
        host.copy_(x, non_blocking=True)
        return host

    def _fetch(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(self._inputs_device(), non_blocking=True) if x.device.type == "cpu" else x

    def _inputs_device(self) -> torch.device:
        return text_stack(self.network).norm.weight.device
