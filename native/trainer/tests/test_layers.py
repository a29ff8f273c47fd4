"""Gradients of the hand-written passes against autograd through the family's own model code, layer by layer the same
modules but with nothing tiled, recomputed or left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from trainer.base import load_model, text_stack
from trainer.layers import Keep
from trainer.lora import LoraLinear
from trainer.objective import Example, window_loss
from trainer.protocol import Base, Model, Recipe
from trainer.targets import put_adapters

CPU = torch.device("cpu")
FAMILIES = ["llama", "qwen2", "qwen3", "gemma3", "hybrid"]
KEEPS = {
    "nothing kept, in tiles": Keep(tile=16),
    "nothing kept, whole": Keep(),
    "last mixer": Keep(mixers=1, tile=16),
    "last mixer, whole": Keep(mixers=1),
    "all mixers, in tiles of one": Keep(mixers=99, tile=1),
    "all mixers, last feed-forward": Keep(mixers=99, feed_forwards=1, tile=16),
    "a feed-forward without its mixer": Keep(feed_forwards=1, tile=16),
    "everything": Keep(mixers=99, feed_forwards=99),
    "offload where there is no card": Keep(tile=16, offload=True),
}
RECIPE = Recipe(4, 8.0, 0.0, 1, 1, 1e-3, 0, 1.0, (0.9, 0.95), 0.0, 1.0, 0.5, 1, 1, 0, 8, 1)


def adapted(folder: str, dropout: float = 0.0, dtype: torch.dtype = torch.float32) -> Any:
    """Both factors random: with B zero, A would have no gradient."""
    network = load_model(Model(Base("folder", folder), []), CPU, torch.float32)
    torch.manual_seed(4)
    for adapter in put_adapters(network, RECIPE).values():
        torch.nn.init.normal_(adapter.lora_b, std=0.2)
        adapter.dropout = dropout
        adapter.train(True)
    return network.to(dtype)


def example_of(length: int = 52, every: bool = False) -> Example:
    ids = torch.randint(5, 400, (length,), generator=torch.Generator().manual_seed(length))
    labels = range(1, length) if every else [*range(3, 9), *range(30, 41), length - 1]
    return Example(ids, torch.tensor(list(labels)))


def plain_loss(network: Any, example: Example) -> torch.Tensor:
    """What window_loss must be, through the model's own forward and full logits."""
    hidden = text_stack(network)(input_ids=example.ids[None, :-1], use_cache=False).last_hidden_state
    logits = network.lm_head(hidden)[0]
    return cross_entropy(logits[example.labels - 1], example.ids[example.labels])


def gradients(network: Any) -> dict[str, torch.Tensor]:
    found = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    network.zero_grad(set_to_none=True)
    return found


def assert_same(ours: dict[str, torch.Tensor], plain: dict[str, torch.Tensor], tolerance: float) -> None:
    assert ours.keys() == plain.keys()
    for name, expected in plain.items():
        assert float(expected.norm()) > 0, name
        assert float((ours[name] - expected).norm() / expected.norm()) < tolerance, name


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_autograds_however_much_is_kept(model_folder: Any, family: str) -> None:
    network, example = adapted(model_folder(family)), example_of()
    loss = plain_loss(network, example)
    loss.backward()
    plain = gradients(network)
    assert all("lora" in name for name in plain) and len(plain) >= 2 * 14
    for name, keep in KEEPS.items():
        found = window_loss(network, example, chunk=8, keep=keep, weight=1.0)
        assert found == pytest.approx(float(loss.detach()), rel=1e-5), name
        assert_same(gradients(network), plain, 2e-4)


def test_a_step_weighs_its_windows_alike_however_many_labels_they_have(model_folder: Any) -> None:
    network = adapted(model_folder("llama"))
    examples = [example_of(20, every=True), example_of(60), example_of(44)]
    torch.stack([plain_loss(network, example) for example in examples]).mean().backward()
    plain = gradients(network)
    for example in examples:
        window_loss(network, example, chunk=8, weight=1 / 3)
    assert_same(gradients(network), plain, 2e-4)


@pytest.mark.parametrize("family", ["llama", "gemma3", "hybrid"])
@pytest.mark.parametrize("keep", ["nothing kept, whole", "last mixer, whole", "everything"])
def test_dropout_drops_the_same_values_when_a_half_is_computed_again(model_folder: Any, family: str, keep: str) -> None:
    """Every position is labelled, so that the last half runs everywhere on both sides, and both draw alike."""
    network, example = adapted(model_folder(family), dropout=0.3), example_of(every=True)
    torch.manual_seed(6)
    loss = plain_loss(network, example)
    drawn = torch.get_rng_state()
    loss.backward()
    plain = gradients(network)
    torch.manual_seed(6)
    found = window_loss(network, example, chunk=8, keep=KEEPS[keep], weight=1.0, dropout=True)
    assert torch.equal(torch.get_rng_state(), drawn), "the generator must go on where the forward left it"
    assert found == pytest.approx(float(loss.detach()), rel=1e-5)
    assert_same(gradients(network), plain, 2e-4)
    other = window_loss(network, example, chunk=8, keep=KEEPS[keep], weight=1.0, dropout=True)
    assert other != pytest.approx(found, rel=1e-4), "another window must drop other values"


@pytest.mark.parametrize("keep", ["nothing kept, in tiles", "all mixers, last feed-forward"])
def test_dropout_in_tiles_has_the_gradient_of_its_own_loss(model_folder: Any, keep: str) -> None:
    """Tiles draw in another order than a whole window, so the derivative along a random direction is measured."""
    network, example = adapted(model_folder("llama"), dropout=0.3, dtype=torch.float64), example_of()
    parameters = [p for p in network.parameters() if p.requires_grad]

    def loss() -> float:  # with gradients every time: what is kept is not tiled, and draws in its own order
        torch.manual_seed(6)
        return window_loss(network, example, chunk=8, keep=KEEPS[keep], weight=1.0, dropout=True)

    loss()
    direction = [torch.randn_like(p) for p in parameters]
    expected = sum(float((p.grad * d).sum()) for p, d in zip(parameters, direction))
    step = 1e-4
    ends = []
    for sign in (1, -2):
        with torch.no_grad():
            for p, d in zip(parameters, direction):
                p.add_(d, alpha=sign * step)
        ends.append(loss())
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(expected, rel=2e-3)


def test_validation_has_no_dropout_and_leaves_no_gradient(model_folder: Any) -> None:
    network, example = adapted(model_folder("llama"), dropout=0.5), example_of()
    for module in network.modules():
        if isinstance(module, LoraLinear):
            module.train(False)
    state = torch.get_rng_state()
    first = window_loss(network, example, chunk=8)
    assert window_loss(network, example, chunk=8, keep=KEEPS["everything"]) == pytest.approx(first, rel=1e-6)
    assert torch.equal(torch.get_rng_state(), state)
    assert gradients(network) == {}
    assert first == pytest.approx(float(plain_loss(network, example).detach()), rel=1e-5)
