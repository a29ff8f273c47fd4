"""The machine: device, number format, threads, memory, and what the `hello` event says about it."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import sys
from importlib.metadata import version
from typing import Any

import torch

from .errors import TrainerError
from .protocol import Machine


def choose_device(machine: Machine) -> torch.device:
    """`auto` is CUDA when there is one, else the CPU: torch's MPS kernels are neither faster nor complete enough here."""
    wanted = machine.device
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise TrainerError("prerequisite", "No CUDA device can be used: install a driver, or set train.device to cpu.")
    if wanted == "mps" and not torch.backends.mps.is_available():
        raise TrainerError("prerequisite", "No MPS device can be used here: set train.device to cpu or auto.")
    return torch.device(wanted)


def choose_dtype(device: torch.device) -> torch.dtype:
    """Base weights and activations; adapters and their optimizer are always float32."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def set_threads(machine: Machine) -> int:
    """Returns how many threads torch uses from now on. Sums of floats depend on how work is split among them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(machine.threads or cores)
    return torch.get_num_threads()


def fast_kernels() -> bool:
    """Whether flash-linear-attention is installed. Found, not imported: importing it compiles for seconds."""
    return importlib.util.find_spec("fla") is not None


def capabilities() -> dict[str, Any]:
    device = choose_device(Machine("auto", 0, True))
    if device.type == "cuda":
        name, size = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory
    else:
        name, size = platform.processor() or platform.machine(), total_memory()
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "peft": version("peft"),
        "device": f"{device.type}: {name}",
        "deviceBytes": size,
        "threads": set_threads(Machine("cpu", 0, True)),
        "fastKernels": fast_kernels(),
    }


def total_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_bytes(device: torch.device) -> int:
    """Memory a new model could take now: on the card, or in the machine within its control group."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info()[0]
    available = total_memory()
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            entries = dict(line.split(":", 1) for line in lines)
        available = int(entries["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        pass  # no /proc: macOS; the total is the best that is known
    group = _read_number("/sys/fs/cgroup/memory.max")
    if group is not None:
        available = min(available, max(0, group - (_read_number("/sys/fs/cgroup/memory.current") or 0)))
    return available


def _read_number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


class PeakMemory:
    """Highest memory use since the last `reset`, in bytes: of the card, or of this process (resident set)."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"

    def reset(self) -> None:
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
            return
        try:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")  # resets VmHWM
        except OSError:
            pass  # not Linux: the peak is then that of the whole process so far

    def read(self) -> int:
        if self._cuda:
            return torch.cuda.max_memory_allocated()
        try:
            with open("/proc/self/status", encoding="ascii") as lines:
                for line in lines:
                    if line.startswith("VmHWM:"):
                        return int(line.split()[1]) * 1024
        except OSError:
            pass
        unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes on macOS, KiB elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
