"""llama.cpp's conversion scripts, taken from the sources that the node-llama-cpp package carries."""

from __future__ import annotations

import os
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUNDLE = os.path.join(ROOT, "node_modules", "node-llama-cpp", "llama", "gitRelease.bundle")
PATHS = ["conversion", "gguf-py", "convert_hf_to_gguf.py", "convert_lora_to_gguf.py", "LICENSE"]


def checkout(target: str) -> str:
    repository = f"{target}.git"
    subprocess.run(["git", "clone", "--quiet", "--bare", BUNDLE, repository], check=True)
    os.makedirs(target)
    tree = ["git", "--git-dir", repository, "--work-tree", target]
    subprocess.run([*tree, "checkout", "--quiet", "HEAD", "--", *PATHS], check=True)
    shutil.rmtree(repository)
    return target
