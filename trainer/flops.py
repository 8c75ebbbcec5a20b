"""How much arithmetic a training is, which bounds its time on any device."""

from __future__ import annotations

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
    module = build_model(config.model, config.model_options, task.input_shape, task.classes, seed=0).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.zeros(1, *task.input_shape))
    images = task.train_size - round(config.val_fraction * task.train_size)
    passes = 1 if config.rho in (None, 0.0) else 2
    return float(config.epochs * images * passes * (1 + BACKWARD) * counter.get_total_flops())
