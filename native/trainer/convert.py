"""The orders `convert` (PEFT adapters -> one GGUF adapter) and `convert-model` (merged folder -> GGUF), by llama.cpp's
own scripts in a process of their own (native/llama/convert.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from .adapters import concatenate, read_pairs, write_combined
from .base import refuse_inexact
from .commands import Emit
from .control import Control
from .errors import TrainerError
from .files import file_sha256, new_path
from .gguf_file import GgufHeader
from .merge import read_record
from .protocol import Base, ConvertModelOrder, ConvertOrder

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "llama", "convert.py")


def convert_command(order: ConvertOrder, emit: Emit, control: Control) -> None:
    """The adapters must have been trained one after another on `order.model`'s base: they are summed, not merged."""
    with new_path(order.output) as temporary, tempfile.TemporaryDirectory() as scratch:
        # The scripts put folder names into the file; fixed ones keep the same adapter the same file.
        combined, config = os.path.join(scratch, "adapter"), os.path.join(scratch, "base")
        rank = write_combined(concatenate([read_pairs(folder) for folder in order.adapters]), combined)
        arguments = ["adapter", "--base", config_folder(order.model.base, config), "--input", combined]
        run_script([*arguments, "--out", temporary, "--type", order.type], order.llama_cpp, control)
        require_adapter(temporary)
    emit(described(order.output, rank))


def convert_model_command(order: ConvertModelOrder, emit: Emit, control: Control) -> None:
    if not os.path.isdir(order.folder):
        raise TrainerError("not_found", f"The model folder is not there: {order.folder}.")
    with new_path(order.output) as temporary:
        arguments = ["model", "--input", order.folder, "--out", temporary, "--type", order.type]
        known = read_record(order.folder).get("tokenizerPre")
        run_script([*arguments, *(["--tokenizer-pre", known] if known else [])], order.llama_cpp, control)
    emit(described(order.output, 0))


def described(output: str, rank: int) -> dict[str, object]:
    return {
        "kind": "converted",
        "output": output,
        "sha256": file_sha256(output),
        "bytes": os.path.getsize(output),
        "rank": rank,
    }


def config_folder(base: Base, scratch: str) -> str:
    """A folder with the base's config.json: its own, or one made of a GGUF's metadata."""
    if base.kind == "folder":
        return base.path
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    refuse_inexact(GgufHeader(base.path))
    folder, file = os.path.split(os.path.abspath(base.path))
    config = transformers.AutoConfig.from_pretrained(folder, gguf_file=file)
    config.architectures = [CLASSES[config.model_type]]
    config.save_pretrained(scratch)
    return scratch


def run_script(arguments: list[str], llama_cpp: str, control: Control) -> None:
    """Raises TrainerError(prerequisite) without the sources, (invalid_input) with the script's last words, (cancelled)."""
    if not os.path.isfile(os.path.join(llama_cpp, "convert_lora_to_gguf.py")):
        raise TrainerError("prerequisite", f"llama.cpp's conversion scripts are not in {llama_cpp}: fetch them again.")
    command = [sys.executable, SCRIPT, *arguments, "--llama-cpp", llama_cpp]
    # Nothing may be fetched: what the scripts need is in the folders they are given.
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            while process.poll() is None:
                control.check()
                try:
                    process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.wait()
        if process.returncode == 0:
            return
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").strip().splitlines()
        raise TrainerError(
            "invalid_input",
            f"llama.cpp's conversion failed: {lines[-1] if lines else f'exit code {process.returncode}'}.",
            {"output": "\n".join(lines[-20:])},
        )


def require_adapter(path: str) -> None:
    """The scripts leave out what they do not know; a pair of every adapted module must be there, and nothing else."""
    header = GgufHeader(path)
    pairs = [name for name in header.tensors if name.endswith(".lora_a")]
    if not pairs or any(f"{name[:-1]}b" not in header.tensors for name in pairs):
        raise TrainerError("internal", f"llama.cpp's conversion wrote no complete pairs: {json.dumps(pairs[:3])}.")
