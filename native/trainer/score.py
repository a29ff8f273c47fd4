"""The order `score`: what the model, with or without an adapter, thinks comes next after fixed prompts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .base import load_model
from .commands import Emit
from .control import Control
from .errors import TrainerError
from .files import new_path
from .machine import choose_device, choose_dtype, set_threads
from .protocol import ScoreOrder


def score_command(order: ScoreOrder, emit: Emit, control: Control) -> None:
    check_prompts(order.prompts, order.last_positions)
    device = choose_device(order.machine)
    set_threads(order.machine)
    with new_path(order.output) as temporary:
        network = load_model(order.model, device, choose_dtype(device))
        if order.adapter is not None:
            network = with_adapter(network, order.adapter)
        vocabulary = network.get_input_embeddings().weight.shape[0]
        with open(temporary, "xb") as file:
            for prompt in order.prompts:
                control.check()
                file.write(last_log_probabilities(network, prompt, order.last_positions).tobytes())
    emit({"kind": "scored", "output": order.output, "vocabulary": vocabulary})


def check_prompts(prompts: list[list[int]], last_positions: int) -> None:
    if not prompts:
        raise TrainerError("invalid_input", "There are no prompts to score.")
    for i, prompt in enumerate(prompts):
        if len(prompt) < last_positions:
            raise TrainerError(
                "invalid_input", f"Prompt {i} has {len(prompt)} tokens and {last_positions} positions are to be scored."
            )


def with_adapter(network: nn.Module, folder: str) -> nn.Module:
    """The adapter beside the weights, as in training: W x + (alpha / rank) B (A x)."""
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(network, folder).eval()
    except (OSError, ValueError, RuntimeError) as error:
        raise TrainerError("invalid_input", f"The adapter {folder} does not fit the model.") from error


@torch.inference_mode()
def last_log_probabilities(network: nn.Module, prompt: list[int], positions: int) -> Any:
    """float32 [positions, vocabulary] in the prompt's order: row i is the distribution after its (i - positions)th token."""
    rows = network.get_input_embeddings().weight.shape[0]
    if max(prompt) >= rows:
        raise TrainerError("invalid_input", f"A prompt holds the id {max(prompt)} and the vocabulary ends at {rows - 1}.")
    ids = torch.tensor([prompt], device=network.get_input_embeddings().weight.device)
    logits = network(input_ids=ids, logits_to_keep=positions, use_cache=False).logits[0]
    return torch.log_softmax(logits.float(), dim=-1).cpu().numpy().astype("<f4", copy=False)
