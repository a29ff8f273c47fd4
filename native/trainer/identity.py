"""Proves that the trainer and the served model mean the same token by the same id, before anything is trained.

Windows hold ids that the served model sampled. If the weights to be trained number their tokens otherwise, training
runs, the loss falls, and the result is broken without a sign. So, before the weights are read: the tables id -> token,
the special tokens and the merges are equal, hostile text becomes the same ids, and there are embeddings for every id,
equal but for rounding where they are sampled.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Callable

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from .base import load_config
from .embedding_rows import compare_embeddings
from .errors import TrainerError
from .gguf_file import GgufHeader
from .hostile import CORPUS
from .protocol import Base

Log = Callable[..., None]
UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 2, 3, 4, 5  # llama.cpp's token types

# How llama.cpp cuts text before merging, by `tokenizer.ggml.pre` (the tokenizers' own published expressions).
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TAIL = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE_EXPRESSIONS: dict[str, list[str]] = {
    "gpt-2": [_GPT2],
    "smollm": [r"\p{N}", _GPT2],
    "qwen2": [rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+{_TAIL}"],
    "qwen35": [rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+{_TAIL}"],
    "llama-bpe": [rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+{_TAIL}"],
}


def prove_identity(base: Base, served_gguf: str, largest_id: int, log: Log) -> None:
    """Raises TrainerError(invalid_input) that names the first id that differs."""
    served = Vocabulary(GgufHeader(served_gguf))
    if base.kind == "gguf":
        own = GgufHeader(base.path)
        rows = own.tensors.get("token_embd.weight", (0, 0))[0]
        if not _same_file(base.path, served_gguf):
            compare_vocabularies(Vocabulary(own), served)
    else:
        config, _ = load_config(base)
        rows = config.get_text_config().vocab_size
        compare_with_tokenizer(base.path, served, log)
    if rows < served.size:
        raise TrainerError(
            "invalid_input",
            f"The base has embeddings for {rows} tokens, and the served vocabulary {served.size}: they are different models.",
        )
    if largest_id >= served.size:
        raise TrainerError(
            "invalid_input", f"The windows hold id {largest_id}, and the vocabulary ends at {served.size - 1}: render again."
        )
    if not (base.kind == "gguf" and _same_file(base.path, served_gguf)):
        meant = [token for token in range(served.size) if not served.placeholder(token)]
        special = [token for token in meant if served.type_of(token) in (CONTROL, USER_DEFINED)]
        compare_embeddings(base, served.header, (special, meant), log)


class Vocabulary:
    """The tokenizer a GGUF describes. `pre` is None for those that do not cut text by an expression (SentencePiece)."""

    def __init__(self, header: GgufHeader) -> None:
        self.header, self.name = header, os.path.basename(header.path)
        self.tokens = header.strings("tokenizer.ggml.tokens")
        self.types = [int(kind) for kind in header.value("tokenizer.ggml.token_type") or []]
        self.merges = header.strings("tokenizer.ggml.merges")
        self.model = header.text("tokenizer.ggml.model")
        self.pre = header.text("tokenizer.ggml.pre") if self.model == "gpt2" else None
        self.end = header.number("tokenizer.ggml.eos_token_id")
        if not self.tokens:
            raise TrainerError("invalid_input", f"{self.name} holds no vocabulary: serve a complete GGUF.")

    @property
    def size(self) -> int:
        return len(self.tokens)

    def type_of(self, token: int) -> int:
        return self.types[token] if token < len(self.types) else 1

    def placeholder(self, token: int) -> bool:
        """Ids that exist only to round the table up."""
        return self.type_of(token) == UNUSED or self.tokens[token].startswith("[PAD")

    def tokenizer(self) -> Tokenizer | None:
        """Byte-level BPE built from the file's own tables, or None when its way of cutting text is not known here."""
        expressions = PRE_EXPRESSIONS.get(self.pre or "")
        if expressions is None or not self.merges:
            return None
        vocabulary = {text: token for token, text in enumerate(self.tokens)}
        merges = [tuple(merge.split(" ", 1)) for merge in self.merges]
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=self.pre == "llama-bpe"))
        cuts = [pre_tokenizers.Split(Regex(text), "isolated") for text in expressions]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        special = [t for i, t in enumerate(self.tokens) if self.type_of(i) in (CONTROL, USER_DEFINED)]
        tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
        return tokenizer


def compare_vocabularies(own: Vocabulary, served: Vocabulary) -> None:
    for token in range(max(own.size, served.size)):
        mine, theirs = _at(own.tokens, token), _at(served.tokens, token)
        if mine != theirs:
            _differ(token, mine, theirs)
        if own.type_of(token) != served.type_of(token):
            raise TrainerError("invalid_input", f"Id {token} ({mine!r}) is special in one of the two GGUFs only.")
    _compare_merges(own.merges, served.merges)
    if own.end != served.end or own.pre != served.pre:
        raise TrainerError(
            "invalid_input",
            f"The GGUFs end a turn or cut text differently: {own.end} and {own.pre}, served {served.end} and {served.pre}.",
        )


def compare_with_tokenizer(folder: str, served: Vocabulary, log: Log) -> None:
    path = os.path.join(folder, "tokenizer.json")
    try:
        with open(path, encoding="utf-8") as file:
            described = json.load(file)
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library raises a bare Exception
        raise TrainerError("invalid_input", f"The base folder has no readable tokenizer.json: {path}.") from error
    own = {token: text for text, token in tokenizer.get_vocab(with_added_tokens=True).items()}
    for token in range(max(max(own, default=-1) + 1, served.size)):
        mine, theirs = own.get(token), _at(served.tokens, token)
        if mine != theirs and not (mine is None and theirs is not None and served.placeholder(token)):
            _differ(token, mine, theirs)
    _compare_special(described, served)
    _compare_end(folder, own, served)
    merges = [m if isinstance(m, str) else " ".join(m) for m in described.get("model", {}).get("merges") or []]
    if served.merges:
        _compare_merges(merges, served.merges)
    _compare_hostile(tokenizer, served, log)


def _compare_special(described: dict[str, Any], served: Vocabulary) -> None:
    added = {entry["id"]: entry for entry in described.get("added_tokens") or []}
    for token in range(served.size):
        kind, entry = served.type_of(token), added.get(token)
        missing = kind == CONTROL and entry is None
        plain = entry is not None and entry.get("special") and kind not in (UNKNOWN, CONTROL, USER_DEFINED, UNUSED)
        if missing or plain:
            raise TrainerError(
                "invalid_input",
                f"Id {token} ({served.tokens[token]!r}) is a special token "
                f"{'in the served model' if missing else 'of the trainer'} only: they are different models.",
            )


def _compare_end(folder: str, own: dict[int, str], served: Vocabulary) -> None:
    try:
        with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
            end = json.load(file).get("eos_token")
    except (OSError, ValueError):
        return
    text = end.get("content") if isinstance(end, dict) else end
    if text is not None and served.end is not None and own.get(served.end) != text:
        raise TrainerError(
            "invalid_input",
            f"The served model ends a turn with id {served.end} ({own.get(served.end)!r}), the trainer's with {text!r}.",
        )


def _compare_merges(own: list[str], served: list[str]) -> None:
    if own == served:
        return
    first = next((i for i, (a, b) in enumerate(zip(own, served)) if a != b), min(len(own), len(served)))
    raise TrainerError(
        "invalid_input",
        f"Merge {first} differs: {_at(own, first)!r}, served {_at(served, first)!r}: the base is not the served model.",
    )


def _compare_hostile(tokenizer: Tokenizer, served: Vocabulary, log: Log) -> None:
    other = served.tokenizer()
    if other is None:
        log("info", f"Hostile text is not compared: how {served.name} cuts text ({served.pre or served.model}) is not known.")
        return
    for text in CORPUS:
        mine = tokenizer.encode(text, add_special_tokens=False).ids
        theirs = other.encode(text, add_special_tokens=False).ids
        if mine != theirs:
            place = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b), min(len(mine), len(theirs)))
            raise TrainerError(
                "invalid_input",
                f"{text[:60]!r} becomes other ids from token {place} on: {_at(mine, place)}, served {_at(theirs, place)}.",
            )


def _differ(token: int, mine: str | None, theirs: str | None) -> None:
    raise TrainerError(
        "invalid_input",
        f"Id {token} is {mine!r} for the trainer and {theirs!r} in the served model: "
        "give train.base the folder of the model that is served.",
        {"id": token, "trainer": mine, "served": theirs},
    )


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def _same_file(a: str, b: str) -> bool:
    if os.path.samefile(a, b):
        return True
    if os.path.getsize(a) != os.path.getsize(b):
        return False
    hashes = []
    for path in (a, b):
        with open(path, "rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashes[0] == hashes[1]
