"""Learning rate, sampling and adapter targets: worked values."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import torch
import transformers

from trainer.errors import TrainerError
from trainer.protocol import Recipe
from trainer.sampler import Sampler
from trainer.schedule import learning_rate, rises
from trainer.targets import expected_count, leaf_names, put_adapters
from trainer.windows import Window

FIELDS: dict[str, Any] = dict(
    rank=4, alpha=8.0, dropout=0.0, steps=1624, windows_per_step=3, learning_rate=3e-5, warmup_steps=5, final_share=0.1,
    betas=(0.9, 0.95), weight_decay=0.0, grad_norm=1.0, orchestrator_share=1 / 3, checkpoint_every=50,
    validate_every=150, patience=3, loss_chunk=512, seed=42,
)  # fmt: skip


def recipe(**changes: Any) -> Recipe:
    return Recipe(**{**FIELDS, **changes})


def test_learning_rate_warms_up_over_five_steps_and_ends_at_a_tenth() -> None:
    rates = [learning_rate(step, recipe()) for step in range(1, 1625)]
    assert rates[:5] == pytest.approx([0.6e-5, 1.2e-5, 1.8e-5, 2.4e-5, 3e-5])
    assert max(rates) == rates[4]
    assert all(a > b for a, b in zip(rates[4:], rates[5:]))
    # Half way between steps 5 and 1624 the cosine stands half way between 3e-5 and 3e-6.
    assert (rates[813] + rates[814]) / 2 == pytest.approx(1.65e-5, rel=1e-3)
    assert rates[-1] == pytest.approx(3e-6)


@pytest.mark.parametrize(
    ("steps", "warmup", "expected"),
    [
        (1, 5, [3e-5]),
        (3, 5, [1e-5, 2e-5, 3e-5]),
        (2, 0, [1.65e-5, 3e-6]),
        (3, 1, [3e-5, 1.65e-5, 3e-6]),
    ],
)
def test_learning_rate_of_short_runs(steps: int, warmup: int, expected: list[float]) -> None:
    rates = [learning_rate(step, recipe(steps=steps, warmup_steps=warmup)) for step in range(1, steps + 1)]
    assert rates == pytest.approx(expected)


def test_rises_counts_the_newest_unbroken_rise() -> None:
    assert [rises(losses) for losses in ([], [3], [3, 2], [3, 2, 2.5, 2.6], [1, 2, 2], [1, 2, 3, 4])] == [0, 0, 0, 2, 0, 3]


def windows_of(*counts: tuple[str, str, int]) -> list[Window]:
    kinds = [(task, role) for task, role, count in counts for _ in range(count)]
    return [Window(i, i * 8, 8, "train", task, role, ((2, 8),)) for i, (task, role) in enumerate(kinds)]


SKEWED = windows_of(
    ("a", "orchestrator", 1), ("a", "subagent", 30), ("a", "auxiliary", 10), ("b", "orchestrator", 4), ("c", "subagent", 2)
)


def test_sampler_takes_tasks_alike_and_the_orchestrator_a_third_of_the_time() -> None:
    chances = Sampler(SKEWED, 1 / 3, 1).probabilities()
    assert sum(chances.values()) == pytest.approx(1)
    assert chances[0] == pytest.approx(1 / 9)  # the only orchestrator window of its task
    assert chances[1] == chances[40] == pytest.approx(2 / 9 / 40)  # subagents and auxiliaries are one pool
    assert chances[41] == pytest.approx(1 / 3 / 4)  # no other role in its task: the orchestrator's windows stand in
    assert chances[45] == pytest.approx(1 / 3 / 2)  # no orchestrator in its task


def test_draws_follow_the_probabilities_and_are_counted() -> None:
    sampler, count = Sampler(SKEWED, 1 / 3, 5), 30_000
    drawn = Counter(sampler.draw().index for _ in range(count))
    for index, chance in sampler.probabilities().items():
        spread = (count * chance * (1 - chance)) ** 0.5
        assert abs(drawn[index] - count * chance) < 5 * spread
    assert sampler.drawn == sum(sampler.exposure.values()) == count
    assert sampler.exposure["a/orchestrator"] == drawn[0]
    assert set(sampler.exposure) == {"a/orchestrator", "a/subagent", "a/auxiliary", "b/orchestrator", "c/subagent"}


def test_a_restored_sampler_goes_on_as_the_first_would_have() -> None:
    first = Sampler(SKEWED, 1 / 3, 9)
    for _ in range(17):
        first.draw()
    state = json.loads(json.dumps(first.state()))
    second = Sampler(SKEWED, 1 / 3, 1234)
    second.restore(state)
    assert [second.draw().index for _ in range(50)] == [first.draw().index for _ in range(50)]
    assert second.state() == first.state()
    assert [Sampler(SKEWED, 1 / 3, 9).draw().index for _ in range(20)] != [Sampler(SKEWED, 1 / 3, 10).draw().index for _ in range(20)]


def qwen36_27b() -> Any:
    """The published configuration: 64 layers, every fourth attends."""
    text = transformers.Qwen3_5TextConfig(
        vocab_size=248_320,
        hidden_size=5120,
        intermediate_size=17_408,
        num_hidden_layers=64,
        num_attention_heads=24,
        num_key_value_heads=4,
        head_dim=256,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=16,
        linear_num_value_heads=48,
        tie_word_embeddings=False,
    )
    return transformers.Qwen3_5Config(text_config=text.to_dict(), tie_word_embeddings=False)


def test_the_27b_has_400_adapted_modules_and_none_in_vision() -> None:
    with torch.device("meta"):
        network = transformers.Qwen3_5ForConditionalGeneration(qwen36_27b())
        adapters = put_adapters(network, recipe(rank=64))
    assert expected_count(network.config.get_text_config()) == len(adapters) == 400
    assert all(name.startswith("model.language_model.layers.") for name in adapters)
    leaves = Counter(name.rpartition(".")[2] for name in adapters)
    assert leaves == {
        **dict.fromkeys(("gate_proj", "up_proj", "down_proj"), 64),
        **dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), 16),
        **dict.fromkeys(("in_proj_qkv", "in_proj_z", "out_proj"), 48),
    }
    assert leaf_names(adapters) == sorted(leaves)
    trainable = [name for name, p in network.named_parameters() if p.requires_grad]
    assert len(trainable) == 800 and all(name.endswith((".lora_a", ".lora_b")) for name in trainable)


def test_a_model_with_a_map_missing_is_refused(model_folder: Any) -> None:
    network = transformers.AutoModelForCausalLM.from_pretrained(model_folder("llama"))
    network.model.layers[1].mlp.up_proj = torch.nn.Identity()
    with pytest.raises(TrainerError, match="13 modules would be adapted.*has 14"):
        put_adapters(network, recipe())


def test_an_unknown_family_has_no_targets() -> None:
    with pytest.raises(TrainerError) as refusal:
        expected_count(transformers.GPT2Config())
    assert refusal.value.code == "invalid_input"
