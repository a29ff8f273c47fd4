"""Which linear maps of a model carry an adapter, and how many there must be."""

from __future__ import annotations

from typing import Any

from torch import nn

from .base import FAMILIES, text_stack
from .errors import TrainerError
from .lora import LoraLinear
from .protocol import Recipe

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
LINEAR_ATTENTION = ("linear_attn.in_proj_qkv", "linear_attn.in_proj_z", "linear_attn.out_proj")
FEED_FORWARD = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
TARGETS = (*ATTENTION, *LINEAR_ATTENTION, *FEED_FORWARD)


def expected_count(config: Any) -> int:
    """From the text configuration alone: 3 feed-forward maps in every layer, 4 of attention or 3 of gated DeltaNet.
    Qwen3.6-27B, 16 + 48 layers: 64 x 3 + 16 x 4 + 48 x 3 = 400."""
    if config.model_type not in FAMILIES:
        raise TrainerError("invalid_input", f"No adapter targets are known for the architecture {config.model_type}.")
    layers = config.num_hidden_layers
    linear = (getattr(config, "layer_types", None) or []).count("linear_attention")
    return layers * len(FEED_FORWARD) + (layers - linear) * len(ATTENTION) + linear * len(LINEAR_ATTENTION)


def put_adapters(network: nn.Module, recipe: Recipe) -> dict[str, LoraLinear]:
    """Replaces the targets in place; everything else is frozen. Returns module path -> adapter, in layer order.
    Raises TrainerError(internal) when the count is not the configuration's, or a target lies outside the text layers."""
    network.requires_grad_(False)
    paths = {id(module): name for name, module in network.named_modules()}
    adapters: dict[str, LoraLinear] = {}
    for layer in text_stack(network).layers:
        for target in TARGETS:
            parent_name, leaf = target.split(".")
            parent = getattr(layer, parent_name, None)
            linear = getattr(parent, leaf, None)
            if isinstance(linear, nn.Linear):
                adapter = LoraLinear(linear, recipe.rank, recipe.alpha, recipe.dropout)
                adapters[paths[id(linear)]] = adapter
                setattr(parent, leaf, adapter)
    expected = expected_count(network.config.get_text_config())
    vision = [name for name in adapters if "visual" in name or "vision" in name]
    if len(adapters) != expected or vision:
        raise TrainerError(
            "internal",
            f"{len(adapters)} modules would be adapted, {len(vision)} of them in vision parts; "
            f"the configuration has {expected} and none.",
        )
    return adapters


def leaf_names(adapters: dict[str, LoraLinear]) -> list[str]:
    """What peft's `target_modules` wants: q_proj, k_proj, ..."""
    return sorted({name.rpartition(".")[2] for name in adapters})
