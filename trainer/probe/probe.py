"""Measures trained trials from their checkpoints, as many at once as a stack has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from polysweep.trainer.components.corruptions import parse
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.probe.curvature import curvature
from polysweep.trainer.probe.settings import CorruptionSettings, CurvatureSettings, Measurement
from polysweep.trainer.probe.surface import Surface
from polysweep.trainer.stack.oracles import build_model
from polysweep.trainer.streams import stream
from polysweep.trainer.task import DTYPES, Buffers, Rows
from polysweep.trainer.tasks.corruptions import accuracies
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.tasks.supervised import WithTestSet
from polysweep.trainer.train import use_settings_of

IMAGES: Final = 500
"""Of the training set, if no number is asked for."""
BATCH: Final = 128
"""Images at a time: the graph of a second derivative holds about three times what a training step does."""


def probe(
    configs: Sequence[TrialConfig],
    rows: Sequence[Mapping[str, Tensor]],
    settings: Measurement,
    *,
    device: str = "cpu",
    data: str | Path = "",
) -> list[dict[str, float]]:
    """What `settings` ask for of trials of one signature: by trial its columns, NaN for what is undefined.

    `rows` are those of their checkpoints. Numbers of a trial are, to rounding, the same beside any others. Which trials
    can be measured so, `trainer.probe.measurable` says before.
    """
    probed = [config.model_copy(update={"precision": settings.precision}) for config in configs]
    use_settings_of(settings.precision)
    task = load_task(probed[0], data, device)
    assert isinstance(task, WithTestSet)
    task, dtype = task.for_rows(probed), DTYPES[settings.precision]
    stacked = _stacked(rows, torch.device(device), dtype)
    if isinstance(settings, CurvatureSettings):
        columns = curvature(_surface(probed, task, stacked, settings), stacked.theta, settings)
    else:
        assert isinstance(settings, CorruptionSettings)
        oracle, _ = task.oracle_and_monitor(probed, {"device": stacked.theta.device, "dtype": dtype})
        columns = accuracies(task, oracle, stacked, [parse(name) for name in settings.corruptions])
    by_column = {name: values.double().tolist() for name, values in columns.items()}
    return [dict(zip(by_column, values, strict=True)) for values in zip(*by_column.values(), strict=True)]


def _stacked(rows: Sequence[Mapping[str, Tensor]], device: torch.device, dtype: torch.dtype) -> Rows:
    """The rows of checkpoints as those of a stack."""
    theta, floats, counters = (torch.stack([row[name] for row in rows]) for name in ("theta", "floats", "counters"))
    return Rows(theta.to(device, dtype), Buffers(floats.to(device, dtype), counters.to(device)))


def _surface(configs: Sequence[TrialConfig], task: WithTestSet, rows: Rows, settings: CurvatureSettings) -> Surface:
    """The loss that is trained, noisy labels included and without label smoothing, on images of the probe's choice."""
    config = configs[0]
    place: dict[str, Any] = {"device": rows.theta.device, "dtype": rows.theta.dtype}
    module = build_model(config.model, config.model_options, task.input_shape, task.classes, seed=0).to(**place)
    order = torch.randperm(task.size, generator=stream(0, "probe"))[: settings.images or IMAGES]
    batches = [_batch(task, positions.to(rows.theta.device), len(configs)) for positions in order.split(BATCH)]
    return Surface(module, rows.buffers, batches, task.losses)


def _batch(task: WithTestSet, positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
    inputs, targets = task.mini_batch(positions.expand(width, -1), None, None)
    return inputs[0], targets
