"""Runs the conversion scripts of llama.cpp's own sources, with what they need mended from outside.

    python native/llama/convert.py adapter --llama-cpp SOURCES --base CONFIG_FOLDER --input PEFT_FOLDER --out F --type f16
    python native/llama/convert.py model   --llama-cpp SOURCES --input MODEL_FOLDER --out FILE --type bf16

A process of its own: the scripts bring their own `gguf` package, which shadows the installed one.

Mended:
- the V heads of linear attention are stored grouped by K head in Hugging Face's layout and tiled in llama.cpp's; the
  scripts reorder weights, and fail on the pair of a LoRA, whose rows are those of B and whose columns those of A;
- a model without a multi-token-prediction block is refused: such a block is never served here, so it is left out;
- a tokenizer that the scripts do not know by its fingerprint can be named (--tokenizer-pre).
"""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description="llama.cpp's conversion scripts, mended.")
    parser.add_argument("what", choices=["adapter", "model"])
    parser.add_argument("--llama-cpp", required=True, type=Path, help="folder of llama.cpp's sources")
    parser.add_argument("--base", type=Path, help="folder with the base's config.json (adapter only)")
    parser.add_argument("--input", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--type", required=True, choices=["f32", "f16", "bf16", "q8_0"])
    parser.add_argument("--tokenizer-pre", help="llama.cpp's name of the pre-tokenizer, when it cannot tell")
    order = parser.parse_args()

    script = order.llama_cpp / ("convert_lora_to_gguf.py" if order.what == "adapter" else "convert_hf_to_gguf.py")
    if not script.is_file():
        parser.error(f"{script} is not there")
    sys.path[:0] = [str(order.llama_cpp), str(order.llama_cpp / "gguf-py")]
    mend(order.tokenizer_pre)
    base = ["--base", str(order.base)] if order.what == "adapter" else []
    sys.argv = [str(script), "--outfile", str(order.out), "--outtype", order.type, *base, str(order.input)]
    runpy.run_path(str(script), run_name="__main__")


def mend(tokenizer_pre: str | None) -> None:
    from conversion import base, qwen

    heads = qwen._LinearAttentionVReorderBase
    reorder_weight = heads._reorder_v_heads

    def reorder(tensor: Any, dim: int, key_heads: int, values_per_key: int, head_dim: int) -> Any:
        if not hasattr(tensor, "get_lora_A_B"):
            return reorder_weight(tensor, dim, key_heads, values_per_key, head_dim)
        a, b = tensor.get_lora_A_B()  # [rank, in], [out, rank]
        order = tiled_order(key_heads, values_per_key, head_dim)
        return type(tensor)(a, b[order]) if dim in (0, -2) else type(tensor)(a[:, order], b)

    heads._reorder_v_heads = staticmethod(reorder)
    qwen._QwenMtpMixin.no_mtp = True

    fingerprint = base.TextModel.get_vocab_base_pre

    def pre_tokenizer(self: Any, tokenizer: Any) -> str:
        try:
            return fingerprint(self, tokenizer)
        except NotImplementedError:
            if tokenizer_pre is None:
                raise
            return tokenizer_pre

    base.TextModel.get_vocab_base_pre = pre_tokenizer


def tiled_order(key_heads: int, values_per_key: int, head_dim: int) -> Any:
    """Row indices that turn [key head, value of it, dim] into [value, key head, dim]."""
    import torch

    grouped = torch.arange(key_heads * values_per_key * head_dim).reshape(key_heads, values_per_key, head_dim)
    return grouped.permute(1, 0, 2).reshape(-1)


if __name__ == "__main__":
    main()
