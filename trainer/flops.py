"""How much arithmetic a training is, which bounds its time on any device."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final

import torch
from torch.utils.flop_counter import FlopCounterMode

from polysweep.trainer.components.plugins import component
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.stack.oracles import build_model

BACKWARD: Final = 2
"""A backward pass costs about two forward passes."""


def training_flops(config: TrialConfig) -> float:
    """Floating point operations of a trial of a built-in image task, a multiply-add counted as two.

    epochs x images x passes of a step x 3 forward passes; products and convolutions alone, evaluation not counted.
    """
    task = component("task", config.task)
    images = task.train_size - round(config.val_fraction * task.train_size)
    passes = 1 if config.rho in (None, 0.0) else 2
    forward = _forward_flops(config.task, config.model, json.dumps(config.model_options))
    return float(config.epochs * images * passes * (1 + BACKWARD) * forward)


@lru_cache
def _forward_flops(task: str, model: str, options: str) -> int:
    shape, classes = component("task", task).input_shape, component("task", task).classes
    module = build_model(model, json.loads(options), shape, classes, seed=0).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.zeros(1, *shape))
    return int(counter.get_total_flops())
