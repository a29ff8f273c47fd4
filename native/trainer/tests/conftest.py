"""Tiny models, made once per run of the tests when first asked for."""

from __future__ import annotations

import os
from typing import Callable

import pytest
import torch

from trainer.testing import tiny_models

MAKERS = {
    "llama": tiny_models.tiny_llama,
    "qwen2": tiny_models.tiny_qwen2,
    "qwen3": tiny_models.tiny_qwen3,
    "gemma3": tiny_models.tiny_gemma3,
    "hybrid": tiny_models.tiny_hybrid,
}


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Family -> Hugging Face folder."""
    root = str(tmp_path_factory.mktemp("models"))
    torch.set_num_threads(2)

    def get(family: str) -> str:
        folder = os.path.join(root, family)
        return folder if os.path.isdir(folder) else MAKERS[family](folder)

    return get
