"""The proof that both sides mean the same token by the same id: what it finds, and that it lets equals pass."""

from __future__ import annotations

import copy
import json
import os
import shutil
import unicodedata
from typing import Any, Callable

import numpy as np
import pytest

from trainer.errors import TrainerError
from trainer.gguf_file import GgufHeader
from trainer.hostile import CORPUS
from trainer.identity import Vocabulary, prove_identity
from trainer.protocol import Base
from trainer.testing.vocabulary_gguf import read_vocabulary, write_vocabulary_gguf

Vocab = dict[str, Any]


@pytest.fixture(scope="module")
def folder(model_folder: Any) -> str:
    return model_folder("llama")


@pytest.fixture(scope="module")
def vocabulary(folder: str) -> Vocab:
    return read_vocabulary(folder)


def prove(folder: str, served: str, largest: int = 100) -> list[str]:
    logged: list[str] = []
    prove_identity(Base("folder", folder), served, largest, lambda level, text: logged.append(f"{level}: {text}"))
    return logged


def changed(vocabulary: Vocab, change: Callable[[Vocab], None]) -> Vocab:
    other = copy.deepcopy(vocabulary)
    change(other)
    return other


def swap(items: list[Any], a: int, b: int) -> None:
    items[a], items[b] = items[b], items[a]


def test_the_same_vocabulary_passes_and_hostile_text_is_compared(folder: str, vocabulary: Vocab, tmp_path: Any) -> None:
    assert prove(folder, write_vocabulary_gguf(f"{tmp_path}/v.gguf", vocabulary)) == []


def test_ids_that_only_round_the_table_up_pass(folder: str, vocabulary: Vocab, tmp_path: Any) -> None:
    def pad(other: Vocab) -> None:  # 512 embeddings, and a tokenizer that ends at 500
        other["tokens"][500:] = [f"[PAD{i}]" for i in range(500, 512)]
        other["types"][500:] = [5] * 12

    short = shutil.copytree(folder, f"{tmp_path}/short")
    path = os.path.join(short, "tokenizer.json")
    with open(path, encoding="utf-8") as file:
        described = json.load(file)
    described["added_tokens"] = [entry for entry in described["added_tokens"] if entry["id"] < 500]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(described, file)
    assert prove(short, write_vocabulary_gguf(f"{tmp_path}/v.gguf", changed(vocabulary, pad))) == []


def drop_last_merge(other: Vocab) -> None:
    """The token that merge made stays in the table: only what text becomes differs."""
    other["merges"].pop()


CHANGES: dict[str, tuple[Callable[[Vocab], None], str]] = {
    "two tokens swapped": (lambda v: swap(v["tokens"], 300, 301), "Id 300 is"),
    "one token more": (lambda v: (v["tokens"].append("extra"), v["types"].append(1)), "Id 512 is None"),
    "one token fewer": (lambda v: (v["tokens"].pop(), v["types"].pop()), "Id 511 is"),
    "a special token that is plain": (lambda v: v["types"].__setitem__(1, 1), "special token of the trainer only"),
    "a plain token that is special": (lambda v: v["types"].__setitem__(300, 3), "in the served model only"),
    "two merges swapped": (lambda v: swap(v["merges"], 4, 5), "Merge 4 differs"),
    "a merge fewer": (drop_last_merge, "differs.*served None"),
    "another end of turn": (lambda v: v.update(end=0), "ends a turn with id 0"),
}


@pytest.mark.parametrize(("change", "says"), CHANGES.values(), ids=CHANGES.keys())
def test_a_difference_to_a_folder_is_found(folder: str, vocabulary: Vocab, tmp_path: Any, change: Any, says: str) -> None:
    served = write_vocabulary_gguf(f"{tmp_path}/v.gguf", changed(vocabulary, change))
    with pytest.raises(TrainerError, match=says) as refusal:
        prove(folder, served)
    assert refusal.value.code == "invalid_input"


@pytest.mark.parametrize(("change", "says"), CHANGES.values(), ids=CHANGES.keys())
def test_a_difference_between_two_ggufs_is_found(vocabulary: Vocab, tmp_path: Any, change: Any, says: str) -> None:
    own = write_vocabulary_gguf(f"{tmp_path}/own.gguf", vocabulary)
    served = write_vocabulary_gguf(f"{tmp_path}/served.gguf", changed(vocabulary, change))
    with pytest.raises(TrainerError) as refusal:
        prove_identity(Base("gguf", own), served, 100, print)
    assert refusal.value.code == "invalid_input"
    prove_identity(Base("gguf", own), own, 100, print)
    prove_identity(Base("gguf", own), shutil.copy(own, f"{tmp_path}/copy.gguf"), 100, print)


def with_merged_digits(folder: str, target: str) -> str:
    """The folder with a token for "12" and the merge that makes it: gpt-2 cuts digits in runs, qwen2 one by one."""
    shutil.copytree(folder, target)
    with open(f"{target}/tokenizer.json", encoding="utf-8") as file:
        described = json.load(file)
    made = len(described["model"]["vocab"])  # the first id of an added token; ids must stay without a gap
    described["added_tokens"] = [entry for entry in described["added_tokens"] if entry["id"] != made]
    described["model"]["vocab"]["12"] = made
    described["model"]["merges"].append(["1", "2"])
    with open(f"{target}/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(described, file)
    return target


def test_text_that_is_cut_otherwise_is_found_though_all_tables_are_equal(folder: str, tmp_path: Any) -> None:
    digits = with_merged_digits(folder, f"{tmp_path}/digits")
    vocabulary = read_vocabulary(digits)
    prove(digits, write_vocabulary_gguf(f"{tmp_path}/same.gguf", vocabulary))
    with pytest.raises(TrainerError, match="becomes other ids from token"):
        prove(digits, write_vocabulary_gguf(f"{tmp_path}/other.gguf", vocabulary, pre="qwen2"))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_embeddings_pass_in_any_number_format_and_a_changed_row_is_found(folder: str, vocabulary: Vocab, tmp_path: Any, kind: str) -> None:
    assert prove(folder, write_vocabulary_gguf(f"{tmp_path}/same.gguf", vocabulary, kind=kind)) == []

    def shift(other: Vocab) -> None:  # tokens keep their ids, weights move on by one
        other["embeddings"] = np.roll(other["embeddings"], 1, axis=0)

    shifted = write_vocabulary_gguf(f"{tmp_path}/shifted.gguf", changed(vocabulary, shift), kind=kind)
    with pytest.raises(TrainerError, match="embedding of id 0 is not the served model's"):
        prove(folder, shifted)


@pytest.mark.parametrize("row", [0, 2, 511])
def test_one_changed_embedding_of_a_special_or_the_last_token_is_found(vocabulary: Vocab, tmp_path: Any, row: int) -> None:
    def replace(other: Vocab) -> None:
        other["embeddings"][row] = other["embeddings"][300]

    own = write_vocabulary_gguf(f"{tmp_path}/own.gguf", vocabulary)
    served = write_vocabulary_gguf(f"{tmp_path}/served.gguf", changed(vocabulary, replace))
    with pytest.raises(TrainerError, match=f"embedding of id {row} "):
        prove_identity(Base("gguf", own), served, 100, print)


def test_not_a_number_is_unlike_everything(folder: str, vocabulary: Vocab, tmp_path: Any) -> None:
    broken = changed(vocabulary, lambda other: other["embeddings"].__setitem__(0, np.nan))
    with pytest.raises(TrainerError, match="embedding of id 0"):
        prove(folder, write_vocabulary_gguf(f"{tmp_path}/v.gguf", broken))


def test_embeddings_of_another_width_are_found(folder: str, vocabulary: Vocab, tmp_path: Any) -> None:
    narrow = changed(vocabulary, lambda other: other.update(embeddings=other["embeddings"][:, :32]))
    with pytest.raises(TrainerError, match="64 wide, the served model's 32"):
        prove(folder, write_vocabulary_gguf(f"{tmp_path}/v.gguf", narrow))


def test_an_unknown_way_of_cutting_text_is_said(folder: str, vocabulary: Vocab, tmp_path: Any) -> None:
    logged = prove(folder, write_vocabulary_gguf(f"{tmp_path}/v.gguf", vocabulary, pre="falcon"))
    assert len(logged) == 1 and "not compared" in logged[0] and "falcon" in logged[0]


def test_too_few_embedding_rows_and_ids_beyond_the_vocabulary_are_found(folder: str, vocabulary: Vocab, tmp_path: Any) -> None:
    served = write_vocabulary_gguf(f"{tmp_path}/v.gguf", vocabulary)
    with pytest.raises(TrainerError, match="hold id 512, and the vocabulary ends at 511"):
        prove(folder, served, 512)
    prove(folder, served, 511)
    short = changed(vocabulary, lambda other: other.update(embeddings=other["embeddings"][:511]))
    own = write_vocabulary_gguf(f"{tmp_path}/own.gguf", short)
    with pytest.raises(TrainerError, match="embeddings for 511 tokens, and the served vocabulary 512"):
        prove_identity(Base("gguf", own), served, 100, print)
    few = shutil.copytree(folder, f"{tmp_path}/few")
    with open(f"{few}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(f"{few}/config.json", "w", encoding="utf-8") as file:
        json.dump({**config, "vocab_size": 500}, file)
    with pytest.raises(TrainerError, match="embeddings for 500"):
        prove(few, served)


def test_a_folder_without_a_tokenizer_and_a_gguf_without_a_vocabulary_are_refused(folder: str, vocabulary: Vocab, tmp_path: Any) -> None:
    served = write_vocabulary_gguf(f"{tmp_path}/v.gguf", vocabulary)
    bare = shutil.copytree(folder, f"{tmp_path}/bare")
    for text in ("{", "[]", "{}"):
        with open(f"{bare}/tokenizer.json", "w", encoding="utf-8") as file:
            file.write(text)
        with pytest.raises(TrainerError, match="tokenizer.json"):
            prove(bare, served)
    empty = write_vocabulary_gguf(f"{tmp_path}/e.gguf", {**vocabulary, "tokens": [], "types": [], "merges": []})
    with pytest.raises(TrainerError, match="holds no vocabulary"):
        prove(folder, empty)


def test_the_corpus_is_composed_and_survives_the_tokenizer(vocabulary: Vocab, tmp_path: Any) -> None:
    tokenizer = Vocabulary(GgufHeader(write_vocabulary_gguf(f"{tmp_path}/v.gguf", vocabulary))).tokenizer()
    assert tokenizer is not None
    for text in CORPUS:
        assert unicodedata.normalize("NFC", text) == text
        assert len(tokenizer.encode(text, add_special_tokens=False).ids) > 0
