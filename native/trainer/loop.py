"""The recipe: method.md, step "Train". Reads from top to bottom."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import random
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from . import checkpoint, delta_kernels, memory
from .base import load_model
from .commands import Emit
from .control import Control
from .errors import TrainerError
from .files import FolderLock, file_sha256
from .identity import prove_identity
from .lora import LoraLinear
from .machine import PeakMemory, choose_device, choose_dtype, set_threads
from .objective import window_loss
from .protocol import Base, Recipe, TrainOrder, to_wire
from .sampler import Sampler
from .schedule import learning_rate, rises
from .targets import put_adapters
from .windows import Window, WindowSet


LOCK_SECONDS = 30.0


def train_command(order: TrainOrder, emit: Emit, control: Control) -> None:
    run = Run(order, emit, control)
    try:
        state, message = run.train()
    except TrainerError as error:
        if error.code != "cancelled":
            raise
        state, message = "stopped", error.message
    finally:
        if run.lock is not None:
            run.lock.release()
    emit({"kind": "done", "state": state, "step": run.step, "message": message})


def order_sha256(order: TrainOrder, windows_sha256: str) -> str:
    """What must be equal for a checkpoint to be continued: model, windows and recipe, by content. Not the machine or any
    path, which may change between two starts."""
    model = {"base": fingerprint(order.model.base), "merged": [adapter_sha256(path) for path in order.model.merged]}
    identity = {"model": model, "windows": windows_sha256, "recipe": to_wire(order.recipe)}
    return hashlib.sha256(json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def fingerprint(base: Base) -> str:
    """Of a GGUF its size and first 16 MiB (metadata, tensor table, the first weights), of a folder its configuration and
    the sizes of its weight files: reading 54 GB at every start would cost minutes."""
    if base.kind == "gguf":
        with open(base.path, "rb") as file:
            return f"{os.path.getsize(base.path)}:{hashlib.sha256(file.read(1 << 24)).hexdigest()}"
    weights = sorted(entry for entry in os.listdir(base.path) if entry.endswith(".safetensors"))
    sizes = [f"{name}:{os.path.getsize(os.path.join(base.path, name))}" for name in weights]
    return ";".join([file_sha256(os.path.join(base.path, "config.json")), *sizes])


def adapter_sha256(folder: str) -> str:
    return file_sha256(os.path.join(folder, "adapter_model.safetensors"))


@dataclass
class Run:
    order: TrainOrder
    emit: Emit
    control: Control
    step: int = 0  # the last one finished
    losses: list[float] = field(default_factory=list)  # one a step
    validations: list[list[float]] = field(default_factory=list)  # [step, loss]
    lock: FolderLock | None = None
    judged_from: int = 0  # earlier validations no longer count as risen: a person let training go on
    saved_step: int = 0

    def train(self) -> tuple[str, str]:
        """Returns the state and message of the `done` event."""
        self.prepare()
        recipe = self.recipe
        if self.step == 0 and not self.validate():
            return "diverged", "Validation loss is not finite before the first step: the base model or the windows are broken."
        while self.step < recipe.steps:
            self.pause()
            if self.control.stop_after_step:
                if self.step > self.saved_step:
                    self.save()
                return "stopped", f"Stopped after step {self.step}, as asked; it goes on from there."
            if not self.train_step():
                return "diverged", f"Training stopped at step {self.step + 1}: the loss is not finite. The checkpoints stand."
            last, risen = self.step == recipe.steps, 0
            if self.step % recipe.validate_every == 0 or last:
                if not self.validate():
                    return "diverged", f"Validation loss at step {self.step} is not finite. The checkpoints stand."
                risen = rises([loss for _, loss in self.validations[self.judged_from :]])
            diverged = 0 < recipe.patience <= risen and not last
            if self.step % recipe.checkpoint_every == 0 or last or diverged:
                self.save()
            if diverged:
                return "diverged", f"Validation loss rose {risen} times in a row up to step {self.step}. The checkpoints stand."
        return "finished", f"All {recipe.steps} steps are done."

    def prepare(self) -> None:
        """Everything before the first step, cheapest checks first."""
        order = self.order
        self.recipe: Recipe = order.recipe
        self.device = choose_device(order.machine)
        self.threads = set_threads(order.machine)
        self.windows = WindowSet(order.windows)
        prove_identity(order.model.base, order.served_gguf, self.windows.largest_id(), self.log)
        self.lock = FolderLock(order.output, LOCK_SECONDS)
        self.control.check()

        self.network: nn.Module = load_model(order.model, self.device, choose_dtype(self.device))
        delta_kernels.require_fast(self.network, self.device, order.machine.allow_slow_kernels, self.log)
        self.order_sha256 = order_sha256(order, self.windows.sha256)  # its files are known to be there
        seed_everything(self.recipe.seed)
        self.adapters: dict[str, LoraLinear] = put_adapters(self.network, self.recipe)
        self.parameters = [p for _, p in checkpoint.named_parameters(self.adapters)]
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=0.0,
            betas=self.recipe.betas,
            weight_decay=self.recipe.weight_decay,
            foreach=False,  # all parameters at once would need as much memory again
        )
        self.sampler = Sampler(self.windows.split("train"), self.recipe.orchestrator_share, self.recipe.seed)
        self.peak = PeakMemory(self.device)
        self.room = memory.measure_room(self.network, self.device)
        self.resume()
        self.emit(
            {
                "kind": "started",
                "fromStep": self.step,
                "adaptedModules": len(self.adapters),
                "orderSha256": self.order_sha256,
            }
        )

    def resume(self) -> None:
        saved = checkpoint.newest(self.order.output, self.order_sha256, lambda text: self.log("warn", text))
        if saved is None:
            return
        folder = checkpoint.folder_of(self.order.output, saved["step"])
        checkpoint.restore(folder, self.adapters, self.optimizer, saved)
        self.sampler.restore(saved["sampler"])
        self.step, self.losses, self.validations = saved["step"], saved["losses"], saved["validations"]
        self.saved_step, self.room = self.step, memory.Room(**saved["room"])
        if 0 < self.recipe.patience <= rises([loss for _, loss in self.validations]):
            self.judged_from = len(self.validations) - 1
        if not self.order.machine.threads:
            self.threads = set_threads(dataclasses.replace(self.order.machine, threads=saved["threads"]))
        if self.threads != saved["threads"]:
            self.log("warn", f"{self.threads} threads instead of {saved['threads']}: sums will differ in their last digits.")

    def train_step(self) -> bool:
        """One optimizer step. False, and nothing changed, when loss or gradient is not finite."""
        recipe, began = self.recipe, time.monotonic()
        step = self.step + 1
        self.peak.reset()
        drawn = [self.sampler.draw() for _ in range(recipe.windows_per_step)]
        self.set_training(True)
        losses = [self.loss_of(window, weight=1 / len(drawn)) for window in drawn]
        loss = math.fsum(losses) / len(losses)  # each window counts the same, however many labels it has
        norm = float(nn.utils.clip_grad_norm_(self.parameters, recipe.grad_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.optimizer.zero_grad(set_to_none=True)
            self.log("error", f"Step {step}: loss {loss}, gradient norm {norm}.", {"windows": [w.index for w in drawn]})
            return False
        rate = learning_rate(step, recipe)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step = step
        self.losses.append(loss)
        self.emit(
            {
                "kind": "step",
                "step": step,
                "loss": loss,
                "learningRate": rate,
                "gradNorm": norm,
                "windows": [window.index for window in drawn],
                "tokens": sum(window.length for window in drawn),
                "labelledTokens": sum(window.labels for window in drawn),
                "seconds": time.monotonic() - began,
                "peakBytes": self.peak.read(),
            }
        )
        return True

    def validate(self) -> bool:
        """Token-weighted mean over all validation windows; null when there are none or it is not finite (false)."""
        held_out = self.windows.split("validate")
        self.set_training(False)
        total, labels = 0.0, 0
        for window in held_out:
            self.pause()
            total += self.loss_of(window) * window.labels
            labels += window.labels
        loss = total / labels if labels else None
        finite = loss is None or math.isfinite(loss)
        event = {"kind": "validation", "step": self.step, "loss": loss if finite else None, "labelledTokens": labels}
        self.emit(event)
        if finite and loss is not None:
            self.validations.append([self.step, loss])
        return finite

    def loss_of(self, window: Window, weight: float | None = None) -> float:
        return window_loss(
            self.network,
            self.windows.example(window),
            chunk=self.recipe.loss_chunk,
            keep=memory.choose_keep(self.network, window.length, self.room, self.recipe.loss_chunk),
            weight=weight,
            dropout=self.recipe.dropout > 0,
            check=self.control.check,
        )

    def save(self) -> None:
        base = self.order.model.base.path
        metadata: dict[str, Any] = {
            "step": self.step,
            "orderSha256": self.order_sha256,
            "base": base,
            "merged": list(self.order.model.merged),
            "windows": self.windows.sha256,
            "recipe": to_wire(self.recipe),
            "losses": self.losses,
            "validations": self.validations,
            "sampler": self.sampler.state(),
            "room": dataclasses.asdict(self.room),
            "threads": self.threads,
        }
        saved = checkpoint.save(self.order.output, self.adapters, self.optimizer, self.recipe, metadata)
        self.saved_step = self.step
        self.emit(
            {
                "kind": "checkpoint",
                "step": self.step,
                "folder": saved.folder,
                "bytes": saved.size,
                "adapterSha256": saved.adapter_sha256,
            }
        )
        self.log("info", f"Windows drawn up to step {self.step}, by task and role.", dict(self.sampler.exposure))

    def set_training(self, training: bool) -> None:
        for adapter in self.adapters.values():  # the rest of the model has nothing that differs
            adapter.train(training)

    def pause(self) -> None:
        self.control.check()
        if self.control.paused:
            self.log("info", f"Paused after step {self.step}.")
            self.control.wait_while_paused()
            self.control.check()

    def log(self, level: str, message: str, fields: dict[str, Any] | None = None) -> None:
        event: dict[str, Any] = {"kind": "log", "level": level, "message": message}
        self.emit({**event, "fields": fields} if fields else event)


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
