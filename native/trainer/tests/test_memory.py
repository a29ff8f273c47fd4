"""The plan, what is kept of a forward, and the check of the fast kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from trainer import memory
from trainer.delta_kernels import compare_gradients, require_fast
from trainer.errors import TrainerError
from trainer.layers import Keep
from trainer.memory import Room, Shape, choose_keep, plan, shape_of, working_bytes
from trainer.objective import Example, window_loss
from trainer.targets import put_adapters
from trainer.testing.orders import parsed, wire_order
from trainer.testing.vocabulary_gguf import read_vocabulary, write_vocabulary_gguf
from trainer.testing.window_sets import Draft, write_window_set

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def order(model_folder: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    root = str(tmp_path_factory.mktemp("plan"))
    folder = model_folder("llama")
    served = write_vocabulary_gguf(f"{root}/served.gguf", read_vocabulary(folder))
    drafts = [Draft(list(range(5, 105)), [(50, 100)]), Draft(list(range(5, 45)), [(20, 30)], split="validate")]
    return parsed(wire_order(folder, served, write_window_set(f"{root}/w", drafts), f"{root}/out"))


def test_a_plans_numbers_by_hand(order: Any) -> None:
    told = plan(order)
    # 512 x 64 twice; per layer 64 x 64 (q, o), 64 x 32 (k, v), 3 of 64 x 128, two norms; one norm at the end
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128
    assert told["parameters"] == 2 * 512 * 64 + 2 * (layer + 128) + 64
    # rank 4: in + out of every map
    assert told["trainable"] == 2 * 4 * (128 + 128 + 96 + 96 + 3 * 192) and told["adaptedModules"] == 14
    assert told["weightsBytes"] == told["parameters"] * 4 and told["adapterBytes"] == told["trainable"] * 16
    assert told["longestWindow"] == 100 and told["fits"] and told["neededBytes"] < told["freeBytes"]
    # 6 steps of 2 windows of 100 tokens, 50 labelled; 4 validations of 40 tokens, 10 labelled
    adapters = told["trainable"]
    trained = (6 * 2 * layer + 8 * adapters) * 100 + 4.5 * 2 * 2 * 64 * 100**2 + 4 * 512 * 64 * 50
    checked = 2 * (2 * layer + adapters) * 40 + 2 * 2 * 64 * 40**2 + 2 * 512 * 64 * 10
    assert told["floatingPointOperations"] == pytest.approx(12 * trained + 4 * checked)
    assert told["hours"] > 0 and "TFLOP/s" in told["assumption"]


def test_a_plan_that_does_not_fit_says_so(order: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1 << 20)
    assert plan(order)["fits"] is False


def test_offloaded_inputs_take_no_room(order: Any) -> None:
    shape = Shape(layers=64, width=5120, feed_forward=17408, mixer=88_000, item=2)
    kept, away = (working_bytes(shape, 248_320, 49_152, 512, offload=offload) for offload in (False, True))
    assert kept - away == 64 * 49_152 * 5120 * 2


@pytest.fixture(scope="module")
def network(model_folder: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(model_folder("llama"), dtype=torch.float32)


def test_what_is_kept_follows_the_room(network: Any) -> None:
    shape = shape_of(network.config, 4, False)
    need = working_bytes(shape, 512, 100, 16, offload=False)
    mixer, rest = 100 * shape.mixer_bytes, 100 * shape.feed_forward_bytes

    def keep(spare: int, recordings: int = 1 << 40) -> tuple[int, int]:
        chosen = choose_keep(network, 100, Room(need + spare, recordings), 16)
        return chosen.mixers, chosen.feed_forwards

    assert [keep(spare) for spare in (0, mixer - 1, mixer, 2 * mixer, 2 * mixer + rest, 1 << 40)] == [
        (0, 0), (0, 0), (1, 0), (2, 0), (2, 1), (2, 2)]  # fmt: skip
    assert keep(1 << 40, recordings=mixer) == (1, 0)
    assert choose_keep(network, 100, Room(need - 1, 1 << 40), 16).offload
    assert choose_keep(network, 100, Room(0, 0), 16) == Keep(0, 0, memory.TILE, True)


def test_room_leaves_what_gradients_and_moments_will_take(model_folder: Any, order: Any, monkeypatch: Any) -> None:
    network = transformers.AutoModelForCausalLM.from_pretrained(model_folder("llama"), dtype=torch.float32)
    put_adapters(network, order.recipe)
    frozen = sum(p.numel() for p in network.parameters() if not p.requires_grad)
    trainable = sum(p.numel() for p in network.parameters() if p.requires_grad)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10_000_000)
    room = memory.measure_room(network, CPU)
    assert room.activations == 5_000_000 - 12 * trainable and room.recordings == frozen * 4
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    assert memory.measure_room(network, CPU) == Room(0, 0)


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """The largest tensor any operation makes, in numbers."""

    size = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        result = function(*arguments, **(options or {}))
        if isinstance(result, torch.Tensor):
            self.size = max(self.size, result.numel())
        return result


def test_no_logits_of_a_whole_window_and_no_whole_feed_forward_are_ever_made(model_folder: Any, order: Any) -> None:
    network = transformers.AutoModelForCausalLM.from_pretrained(model_folder("llama"), dtype=torch.float32)
    put_adapters(network, order.recipe)
    example = Example(torch.arange(400) % 300 + 5, torch.arange(1, 400))
    with Largest() as lean:
        window_loss(network, example, chunk=16, keep=Keep(tile=32), weight=1.0)
    with Largest() as wide:
        window_loss(network, example, chunk=400, keep=Keep(tile=400), weight=1.0)
    assert wide.size >= 399 * 512  # the window's logits
    assert lean.size < 399 * 128  # not even the activation of one feed-forward half


def torch_path(q: Any, k: Any, v: Any, g: Any, beta: Any, use_qk_l2norm_in_kernel: bool) -> Any:
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

    return torch_chunk_gated_delta_rule(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel)


def test_the_recurrence_is_the_chunked_path_of_the_model() -> None:
    assert compare_gradients(torch_path, CPU, torch.float32) < 1e-4


WRONG = {
    "no decay": lambda q, k, v, g, beta: (q, k, v, g * 0, beta),
    "a gradient that is cut off": lambda q, k, v, g, beta: (q, k, v, g.detach(), beta),
    "values of the token before": lambda q, k, v, g, beta: (q, k, v.roll(1, 1), g, beta),
    "not a number": lambda q, k, v, g, beta: (q * float("nan"), k, v, g, beta),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_a_kernel_that_computes_something_else_is_found(change: Any) -> None:
    def kernel(q: Any, k: Any, v: Any, g: Any, beta: Any, use_qk_l2norm_in_kernel: bool) -> Any:
        return torch_path(*change(q, k, v, g, beta), use_qk_l2norm_in_kernel)

    try:
        worst = compare_gradients(kernel, CPU, torch.float32)
    except AttributeError:  # no gradient came back at all
        return
    assert worst > 0.05


def test_a_hybrid_on_cuda_needs_the_kernels_or_leave(model_folder: Any, monkeypatch: Any) -> None:
    hybrid = transformers.AutoModel.from_pretrained(model_folder("hybrid"))
    plain = transformers.AutoModel.from_pretrained(model_folder("llama"))
    logged: list[str] = []

    def log(level: str, text: str) -> None:
        logged.append(level)

    monkeypatch.setattr("trainer.delta_kernels.fast_kernels", lambda: False)
    with pytest.raises(TrainerError, match="pip install flash-linear-attention"):
        require_fast(hybrid, torch.device("cuda"), False, log)
    require_fast(plain, torch.device("cuda"), False, log)
    require_fast(hybrid, CPU, False, log)
    assert logged == []
    require_fast(hybrid, torch.device("cuda"), True, log)
    assert logged == ["warn"]
