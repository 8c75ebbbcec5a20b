"""Small stacks, their mini-batches, and a row as a plain module."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from polysweep.trainer.components.registry import MODELS
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.streams import epoch_order
from polysweep.trainer.tasks.loading import load_task
from tests.support.project import TINY

SCHEDULERS = {
    "constant": {"lr": 0.05},
    "cosine": {"lr": 0.1, "lr_min": 0.01},
    "polyak": {"gamma_b": 1.0, "lower_bound": 0.0},
}
BASE = {**TINY, "model": "resnet8", "batch_size": 64, "epochs": 20, "weight_decay": 5e-4}


def config(**changes: object) -> TrialConfig:
    scheduler = str(changes.get("scheduler", "polyak"))
    values = {**BASE, **SCHEDULERS[scheduler], **changes}
    if values["optimizer"] == "sgd":
        values.pop("rho", None)
        values.pop("batchnorm_statistics", None)
    return TrialConfig.parse(values)


def stack_of(*configs: TrialConfig) -> Stack:
    stack = Stack(configs, load_task(configs[0]))
    stack.step_sizes.start_epoch(0)
    return stack


def mini_batches(stack: Stack, epochs: int = 3) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """Epoch t, step (), images (K, b, ...), labels (K, b), as the loop draws them."""
    step = 0
    for epoch in range(epochs):
        stack.step_sizes.start_epoch(epoch)
        order = epoch_order([c.seed for c in stack.configs], epoch + 1, len(stack.task.train))
        size = stack.configs[0].batch_size
        for positions in order.split(size, dim=1):
            yield epoch, torch.tensor(step), *stack.task.mini_batch(positions, None, None)
            step += 1


def plain_module(stack: Stack) -> nn.Module:
    """The stack's module on its own, in training mode."""
    first = stack.configs[0]
    build = MODELS[first.model].load()
    module: nn.Module = build(stack.task.input_shape, stack.task.classes, **first.model_options)
    return module.to(stack.dtype).train()


def load(module: nn.Module, stack: Stack, row: int = 0) -> None:
    """Put a row's parameters and buffers into a plain module."""
    nn.utils.vector_to_parameters(stack.theta[row].clone(), module.parameters())
    floats = [b for b in module.buffers() if b.is_floating_point()]
    with torch.no_grad():
        for buffer, part in zip(floats, stack.buffers.floats[row].split([b.numel() for b in floats]), strict=True):
            buffer.copy_(part.view(buffer.shape))


def flat_buffers(module: nn.Module) -> Tensor:
    parts = [b.reshape(-1) for b in module.buffers() if b.is_floating_point()]
    return torch.cat(parts) if parts else torch.zeros(0)
