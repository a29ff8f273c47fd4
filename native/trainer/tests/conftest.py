"""Tiny models, made once per run of the tests when first asked for."""

from __future__ import annotations

import os
from typing import Callable

# Read when torch is loaded. Tiny models spend their time waiting, and spinning threads starve whatever else runs.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import pytest  # noqa: E402
import torch  # noqa: E402

from trainer.testing import tiny_models  # noqa: E402

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
    torch.set_num_threads(1)

    def get(family: str) -> str:
        folder = os.path.join(root, family)
        return folder if os.path.isdir(folder) else MAKERS[family](folder)

    return get
