"""Scores, combined adapters, merged folders and GGUF files, on tiny models with random adapters."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file

from trainer.adapters import Pair, concatenate, read_pairs, write_combined
from trainer.control import Control
from trainer.convert import convert_command, convert_model_command, run_script
from trainer.errors import TrainerError
from trainer.files import folder_sha256, new_path
from trainer.merge import merge_command
from trainer.protocol import Base, ConvertModelOrder, ConvertOrder, Machine, MergeOrder, Model, ScoreOrder
from trainer.score import score_command
from trainer.testing import llama_sources, tiny_models

CPU = Machine("cpu", 2, True)
FEW = {"hybrid": ["q_proj", "in_proj_z", "out_proj"], "llama": ["q_proj", "k_proj", "down_proj"]}
PROMPTS = [[5 + (i * 37) % 380 for i in range(48)], [7, 300, 12, 9]]


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> str:
    """`hybrid` and `llama` folders, their f32 GGUFs, and two adapters of each: all targets rank 8, few targets rank 4."""
    root = str(tmp_path_factory.mktemp("shelf"))
    torch.set_num_threads(2)
    sources = llama_sources.checkout(os.path.join(root, "llama.cpp"))
    for family, make in (("hybrid", tiny_models.tiny_hybrid), ("llama", tiny_models.tiny_llama)):
        folder = make(os.path.join(root, family))
        tiny_models.random_adapter(folder, f"{folder}-1")
        tiny_models.random_adapter(folder, f"{folder}-2", rank=4, alpha=4, seed=2, targets=FEW[family])
        to_gguf(folder, f"{folder}.gguf", sources)
    return root


def to_gguf(folder: str, out: str, sources: str) -> None:
    pre = ["--tokenizer-pre", tiny_models.TOKENIZER_PRE]
    run_script(["model", "--input", folder, "--out", out, "--type", "f32", *pre], sources, Control())


def model_of(folder: str, *merged: str) -> Model:
    return Model(Base("folder", folder), list(merged))


def load(folder: str) -> Any:
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        kind = json.load(file)["architectures"][0]
    return getattr(transformers, kind).from_pretrained(folder, dtype=torch.float32).eval()


def score(out: str, model: Model, adapter: str | None = None, last: int = 3) -> np.ndarray:
    events: list[dict[str, Any]] = []
    score_command(ScoreOrder(model, adapter, PROMPTS, last, out, CPU), events.append, Control())
    assert events == [{"kind": "scored", "output": out, "vocabulary": tiny_models.VOCABULARY}]
    return np.fromfile(out, dtype="<f4").reshape(len(PROMPTS) * last, tiny_models.VOCABULARY)


def convert(out: str, model: Model, adapters: list[str], shelf: str, kind: str = "f32") -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    sources = os.path.join(shelf, "llama.cpp")
    convert_command(ConvertOrder(model, adapters, out, kind, sources), events.append, Control())
    return events[0]


def tensors_of(path: str) -> dict[str, np.ndarray]:
    reader = gguf.GGUFReader(path)
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}


def deltas_of(path: str) -> dict[str, np.ndarray]:
    """Weight name -> what llama.cpp adds for a GGUF adapter: (alpha / rank) B A, rank that of the pair."""
    alpha = gguf.GGUFReader(path).fields["adapter.lora.alpha"].contents()
    tensors = tensors_of(path)
    return {
        name.removesuffix(".lora_a"): (alpha / a.shape[0]) * tensors[f"{name[:-1]}b"] @ a
        for name, a in tensors.items()
        if name.endswith(".lora_a")
    }


# --- score


def test_scores_are_the_models_log_probabilities_at_the_last_positions(shelf: str, tmp_path: Any) -> None:
    folder = f"{shelf}/llama"
    rows = score(f"{tmp_path}/s", model_of(folder), last=3)
    with torch.inference_mode():
        logits = load(folder)(input_ids=torch.tensor([PROMPTS[1]])).logits[0]
    expected = torch.log_softmax(logits, -1)[1:].numpy()  # after tokens 2, 3 and 4 of 4
    np.testing.assert_allclose(rows[3:], expected, atol=2e-5)
    np.testing.assert_allclose(np.exp(rows).sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_scores_with_an_adapter_are_pefts(shelf: str, tmp_path: Any, family: str) -> None:
    folder = f"{shelf}/{family}"
    rows = score(f"{tmp_path}/s", model_of(folder), f"{folder}-1", last=1)
    network = PeftModel.from_pretrained(load(folder), f"{folder}-1").eval()
    with torch.inference_mode():
        expected = torch.log_softmax(network(input_ids=torch.tensor([PROMPTS[0]])).logits[0, -1], -1).numpy()
    np.testing.assert_allclose(rows[0], expected, atol=2e-5)
    assert np.abs(np.exp(rows) - np.exp(score(f"{tmp_path}/b", model_of(folder), last=1))).sum(axis=1).min() > 0.05


def test_refusals_of_score(shelf: str, tmp_path: Any) -> None:
    model = model_of(f"{shelf}/llama")
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for prompts, last, out, code in (
        ([], 1, "a", "invalid_input"),
        ([[1, 2]], 3, "a", "invalid_input"),
        ([[tiny_models.VOCABULARY]], 1, "a", "invalid_input"),
        ([[1]], 1, "taken", "conflict"),
    ):
        with pytest.raises(TrainerError) as refusal:
            score_command(ScoreOrder(model, None, prompts, last, f"{tmp_path}/{out}", CPU), print, Control())
        assert refusal.value.code == code
    assert taken.read_text() == "mine"
    assert os.listdir(tmp_path) == ["taken"]


# --- combining


def test_pairs_hold_the_scaling_and_concatenate_along_the_rank() -> None:
    one = Pair(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
    two = Pair(torch.tensor([[0.0, 1.0]]), torch.tensor([[5.0], [0.0]]))
    both = concatenate([{"x": one}, {"x": two, "y": two}])
    assert torch.equal(both["x"].b @ both["x"].a, torch.tensor([[3.0, 11.0], [4.0, 8.0]]))  # [[3,6],[4,8]] + [[0,5],[0,0]]
    assert both["y"] is not two and torch.equal(both["y"].a, two.a)


def test_scaling_of_a_read_pair_is_alpha_over_rank(shelf: str) -> None:
    name, pair = next(iter(read_pairs(f"{shelf}/llama-1").items()))
    raw = load_file(f"{shelf}/llama-1/adapter_model.safetensors")
    assert torch.equal(pair.b, raw[f"base_model.model.{name}.lora_B.weight"] * 2)  # alpha 16, rank 8


@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_combined_adapter_loaded_by_peft_is_both(shelf: str, tmp_path: Any, family: str) -> None:
    folder = f"{shelf}/{family}"
    rank = write_combined(concatenate([read_pairs(f"{folder}-1"), read_pairs(f"{folder}-2")]), f"{tmp_path}/both")
    assert rank == 12  # 8 + 4, and 8 alone where the second adapts nothing
    together = score(f"{tmp_path}/a", model_of(folder), f"{tmp_path}/both")
    merged = score(f"{tmp_path}/b", model_of(folder, f"{folder}-1"), f"{folder}-2")
    np.testing.assert_allclose(together, merged, atol=2e-4)
    assert np.abs(merged - score(f"{tmp_path}/c", model_of(folder), f"{folder}-1")).max() > 0.05


def broken_adapter(source: str, target: str, edit: Any) -> str:
    shutil.copytree(source, target)
    tensors = load_file(f"{target}/adapter_model.safetensors")
    edit(tensors)
    save_file(tensors, f"{target}/adapter_model.safetensors")
    return target


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_adapters_with_numbers_that_are_not_finite_are_refused(shelf: str, tmp_path: Any, bad: float) -> None:
    folder = broken_adapter(f"{shelf}/llama-1", f"{tmp_path}/x", lambda t: next(iter(t.values())).__setitem__((0, 0), bad))
    with pytest.raises(TrainerError, match="not finite"):
        read_pairs(folder)


def test_half_a_pair_is_refused(shelf: str, tmp_path: Any) -> None:
    folder = broken_adapter(f"{shelf}/llama-1", f"{tmp_path}/x", lambda t: t.pop(next(k for k in t if "lora_B" in k)))
    with pytest.raises(TrainerError, match="half a pair"):
        read_pairs(folder)


# --- conversion of adapters


@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_gguf_adapter_adds_what_merging_adds_to_the_gguf(shelf: str, tmp_path: Any, family: str) -> None:
    """Every tensor, so any wrong order of heads shows: llama's rotated q and k, linear attention's value heads."""
    folder = f"{shelf}/{family}"
    event = convert(f"{tmp_path}/both.gguf", model_of(folder), [f"{folder}-1", f"{folder}-2"], shelf)
    assert event["rank"] == 12
    network = load(folder)
    for adapter in (f"{folder}-1", f"{folder}-2"):
        network = PeftModel.from_pretrained(network, adapter).merge_and_unload()
    network.save_pretrained(f"{tmp_path}/merged")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{folder}/{name}", f"{tmp_path}/merged/{name}")
    to_gguf(f"{tmp_path}/merged", f"{tmp_path}/merged.gguf", f"{shelf}/llama.cpp")
    base, merged, deltas = tensors_of(f"{folder}.gguf"), tensors_of(f"{tmp_path}/merged.gguf"), deltas_of(event["output"])
    changed = {name for name in base if not np.array_equal(base[name], merged[name])}
    assert changed == set(deltas)
    for name, delta in deltas.items():
        np.testing.assert_allclose(delta, merged[name] - base[name], atol=2e-5, err_msg=name)
        assert np.abs(delta).max() > 0.01


def test_a_gguf_base_gives_the_adapter_that_its_folder_gives(shelf: str, tmp_path: Any) -> None:
    folder, base = f"{shelf}/llama", Model(Base("gguf", f"{shelf}/llama.gguf"), [])
    np.testing.assert_allclose(score(f"{tmp_path}/a", base), score(f"{tmp_path}/b", model_of(folder)), atol=2e-5)
    one = convert(f"{tmp_path}/1.gguf", base, [f"{folder}-1"], shelf)
    two = convert(f"{tmp_path}/2.gguf", model_of(folder), [f"{folder}-1"], shelf)
    left, right = deltas_of(one["output"]), deltas_of(two["output"])
    assert left.keys() == right.keys()
    for name, delta in left.items():
        np.testing.assert_array_equal(delta, right[name])


def test_the_same_adapter_gives_the_same_bytes_and_nothing_is_overwritten(shelf: str, tmp_path: Any) -> None:
    model, adapters = model_of(f"{shelf}/hybrid"), [f"{shelf}/hybrid-1"]
    one = convert(f"{tmp_path}/one.gguf", model, adapters, shelf, "f16")
    two = convert(f"{tmp_path}/other/two.gguf", model, adapters, shelf, "f16")
    assert one["sha256"] == two["sha256"]
    assert filecmp.cmp(one["output"], two["output"], shallow=False)
    with pytest.raises(TrainerError) as refusal:
        convert(one["output"], model, adapters, shelf, "f16")
    assert refusal.value.code == "conflict"


def test_conversion_without_the_sources_or_of_an_unknown_model_is_refused(shelf: str, tmp_path: Any) -> None:
    model = model_of(f"{shelf}/llama")
    with pytest.raises(TrainerError) as refusal:
        convert_command(ConvertOrder(model, [f"{shelf}/llama-1"], f"{tmp_path}/x", "f16", str(tmp_path)), print, Control())
    assert refusal.value.code == "prerequisite"
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text('{"architectures": ["OddForCausalLM"], "model_type": "odd"}')
    with pytest.raises(TrainerError, match="conversion failed"):
        convert(f"{tmp_path}/x", model_of(f"{tmp_path}/odd"), [f"{shelf}/llama-1"], shelf)
    assert sorted(os.listdir(tmp_path)) == ["odd"]


def test_stop_now_ends_a_conversion(shelf: str, tmp_path: Any) -> None:
    control = Control()
    control.apply("stop-now")
    order = ConvertOrder(model_of(f"{shelf}/llama"), [f"{shelf}/llama-1"], f"{tmp_path}/x", "f16", f"{shelf}/llama.cpp")
    with pytest.raises(TrainerError) as stopped:
        convert_command(order, print, control)
    assert stopped.value.code == "cancelled"
    assert os.listdir(tmp_path) == []


# --- merged folders


def merge(out: str, model: Model, adapter: str) -> dict[str, Any]:
    events: list[dict[str, Any]] = []
    merge_command(MergeOrder(model, adapter, out, CPU), events.append, Control())
    return events[0]


@pytest.mark.parametrize("family", ["llama", "hybrid"])
def test_merged_folder_is_the_sum_rounded_once(shelf: str, tmp_path: Any, family: str) -> None:
    folder = f"{shelf}/{family}"
    event = merge(f"{tmp_path}/m", model_of(folder, f"{folder}-1"), f"{folder}-2")
    assert event == {"kind": "merged", "output": f"{tmp_path}/m", "sha256": folder_sha256(f"{tmp_path}/m")}
    network = load(folder)
    for adapter in (f"{folder}-1", f"{folder}-2"):
        network = PeftModel.from_pretrained(network, adapter).merge_and_unload()
    before, after = load_file(f"{folder}/model.safetensors"), load_file(f"{tmp_path}/m/model.safetensors")
    assert before.keys() == after.keys()
    for name, expected in network.state_dict().items():
        got = after[name]
        assert got.dtype == (torch.bfloat16 if got.ndim > 1 else before[name].dtype), name
        # one unit in the last of 8 bits: the sums may round to either side
        torch.testing.assert_close(got.float(), expected, atol=1e-6, rtol=2**-8, msg=name)
    assert transformers.AutoConfig.from_pretrained(f"{tmp_path}/m").dtype == torch.bfloat16


def test_merged_folder_keeps_weights_that_no_loader_knows_and_its_shards(shelf: str, tmp_path: Any) -> None:
    source = f"{tmp_path}/base"
    shutil.copytree(f"{shelf}/hybrid", source)
    tensors = load_file(f"{source}/model.safetensors")
    tensors["mtp.fc.weight"] = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:20], "model-00002-of-00002.safetensors": names[20:]}
    for part, held in parts.items():
        save_file({name: tensors[name] for name in held}, f"{source}/{part}")
    os.remove(f"{source}/model.safetensors")
    index = {"metadata": {"total_size": 1}, "weight_map": {n: part for part, held in parts.items() for n in held}}
    with open(f"{source}/model.safetensors.index.json", "w", encoding="utf-8") as file:
        json.dump(index, file)
    merge(f"{tmp_path}/m", model_of(source), f"{shelf}/hybrid-1")
    merge(f"{tmp_path}/whole", model_of(f"{shelf}/hybrid"), f"{shelf}/hybrid-1")
    found: dict[str, torch.Tensor] = {}
    for part in parts:
        found |= load_file(f"{tmp_path}/m/{part}")
    assert torch.equal(found.pop("mtp.fc.weight"), tensors["mtp.fc.weight"])
    whole = load_file(f"{tmp_path}/whole/model.safetensors")
    assert found.keys() == whole.keys() and all(torch.equal(found[name], whole[name]) for name in whole)


def test_merging_an_adapter_of_another_model_is_refused_and_leaves_nothing(shelf: str, tmp_path: Any) -> None:
    for model in (model_of(f"{shelf}/llama"), Model(Base("gguf", f"{shelf}/llama.gguf"), [])):
        with pytest.raises(TrainerError) as refusal:
            merge(f"{tmp_path}/m", model, f"{shelf}/hybrid-1")
        assert refusal.value.code == "invalid_input"
    (tmp_path / "m").mkdir()
    with pytest.raises(TrainerError) as refusal:
        merge(f"{tmp_path}/m", model_of(f"{shelf}/llama"), f"{shelf}/llama-1")
    assert refusal.value.code == "conflict"
    assert os.listdir(tmp_path) == ["m"] and os.listdir(tmp_path / "m") == []


@pytest.mark.parametrize("kind", ["bf16", "f16", "q8_0"])
def test_a_merged_gguf_base_converts_to_gguf(shelf: str, tmp_path: Any, kind: str) -> None:
    base = Model(Base("gguf", f"{shelf}/llama.gguf"), [])
    merge(f"{tmp_path}/m", base, f"{shelf}/llama-1")
    events: list[dict[str, Any]] = []
    order = ConvertModelOrder(f"{tmp_path}/m", f"{tmp_path}/m.gguf", kind, f"{shelf}/llama.cpp")
    convert_model_command(order, events.append, Control())
    merge(f"{tmp_path}/f", model_of(f"{shelf}/llama"), f"{shelf}/llama-1")
    base_tensors, got = tensors_of(f"{shelf}/llama.gguf"), tensors_of(f"{tmp_path}/m.gguf")
    assert got.keys() == base_tensors.keys()
    reference = f"{tmp_path}/f.gguf"
    to_gguf(f"{tmp_path}/f", reference, f"{shelf}/llama.cpp")
    step = {"bf16": 1e-6, "f16": 1e-6, "q8_0": 2e-2}[kind]
    for name, expected in tensors_of(reference).items():
        np.testing.assert_allclose(got[name], expected, atol=step * max(1, np.abs(expected).max()), err_msg=name)
    old, new = (gguf.GGUFReader(path).fields for path in (f"{shelf}/llama.gguf", f"{tmp_path}/m.gguf"))
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.pre", "tokenizer.ggml.eos_token_id"):
        assert old[key].contents() == new[key].contents(), key


# --- files


def test_a_failed_body_leaves_nothing_and_a_taken_name_is_kept(tmp_path: Any) -> None:
    path = str(tmp_path / "deep" / "x")
    with pytest.raises(RuntimeError):
        with new_path(path) as temporary:
            open(temporary, "w").close()
            raise RuntimeError
    assert os.listdir(tmp_path / "deep") == []
    with pytest.raises(TrainerError, match=re.escape(path)):
        with new_path(path) as temporary:
            open(temporary, "w").close()
            (tmp_path / "deep" / "x").write_text("somebody else's")
    assert (tmp_path / "deep" / "x").read_text() == "somebody else's"
