"""The only training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from polysweep.trainer.checkpoint import CHECKPOINT_FORMAT
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.device import keep_freed_memory
from polysweep.trainer.epoch import EpochResult, EpochRunner, Sums, means_of
from polysweep.trainer.stack.cuda_graph import Capture, cuda_graph
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.loading import load_task

Checkpoint = Mapping[str, Any]
HistoryRow = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """One row's epoch. `checkpoint` gives the row as it was at the epoch's end, whenever it is called."""

    row: int
    epoch: int
    history: HistoryRow
    outcome: Literal["running", "finished", "diverged"]
    checkpoint: Callable[[], Checkpoint]


def train(
    configs: Sequence[TrialConfig],
    *,
    width: int | None = None,
    checkpoints: Sequence[Checkpoint | None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    device: str = "cpu",
    data: str | Path = "",
    capture: Capture | None = None,
) -> Iterator[list[Report]]:
    """Train the trials `configs` as one stack and yield, epoch by epoch, one report for every row still going.

    `width` is K (default: the number of trials); a shorter group is padded with copies whose results are dropped.
    `checkpoints` has one entry per trial, None to start it; all must stand at the same epoch. `stop` is read between
    mini-batches; when it returns True the epoch in flight is dropped and the iterator ends. A row that diverges
    reports its partial epoch once, with outcome `diverged`. `data` is the folder of the data sets. `capture` replaces
    the CUDA graph that a step becomes on a GPU.

    Random streams need no state: the order, crops and flips of an epoch, and what a user's module draws in it, follow
    from seed and epoch alone.
    """
    width = width or len(configs)
    assert len(configs) <= width, "a group is never wider than its stack"
    config = configs[0]
    use_settings_of(config.precision)
    keep_freed_memory()
    if torch.device(device).index is not None:
        torch.cuda.set_device(device)  # a graph is captured on the current device
    padded = [*configs, *[configs[-1]] * (width - len(configs))]  # copies train too; nobody reads or waits for them
    stack = Stack(padded, load_task(config, data, device), device)
    starts = list(checkpoints or [None] * len(configs))
    epoch = _restore(stack, starts, len(configs))
    histories = [[*(checkpoint["history"] if checkpoint else [])] for checkpoint in starts]
    runner = EpochRunner(stack, capture or (cuda_graph if stack.device.type == "cuda" else None))
    per_epoch = stack.task.steps_per_epoch(config.batch_size)
    try:
        while epoch < config.epochs and bool(stack.active[: len(configs)].any()):
            going = stack.active.tolist()[: len(configs)]
            result = runner.run(epoch + 1, epoch * per_epoch, stop)
            if result is None:
                return
            epoch += 1
            rows = _history_rows(stack, epoch, (epoch - 1) * per_epoch, result)
            whole = stack.tensors()  # a step replaces them, or where it is a captured graph writes into them
            if runner.overwrites:
                whole = [tensor.clone() for tensor in whole]
            reports = []
            for row in (row for row, was_going in enumerate(going) if was_going):
                histories[row].append(rows[row])
                outcome = _outcome(stack.configs[row], rows[row])
                make = _checkpointer(stack, row, outcome, whole, histories[row], epoch)
                reports.append(Report(row, epoch, rows[row], outcome, make))
            yield reports
    finally:
        runner.close()


def use_settings_of(precision: str) -> None:
    """torch's process-wide switches: TF32 only where the config asks for it, and the same bits in every run."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False  # it would choose algorithms by timing them


def _history_rows(stack: Stack, epoch: int, steps: int, result: EpochResult) -> list[HistoryRow]:
    """Every row's history of the epoch that came after `steps` steps."""
    measured = stack.measure(steps + result.steps)  # freezes rows whose loss is not finite
    seconds = time.perf_counter() - result.started  # evaluation included
    is_active = stack.active.tolist()
    step_counts = [int(count) for count in result.sums.steps.tolist()]
    by_column: dict[str, Sequence[Any]] = {
        "epoch": [epoch] * stack.width,
        "step": [steps + count for count in step_counts],
        "partial": [not active for active in is_active],
        "seconds": [seconds] * stack.width,
        "images_per_second": [result.images / result.training_seconds] * stack.width,
        **_step_columns(stack, result.sums, step_counts),
        **{name: _only(values.tolist(), is_active) for name, values in measured.items()},
    }
    columns = stack.task.columns
    not_measured = [None] * stack.width
    by_row = zip(*(_known(by_column.get(name, not_measured)) for name in columns), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in by_row]


def _step_columns(stack: Stack, sums: Sums, step_counts: Sequence[int]) -> dict[str, Sequence[Any]]:
    """Means and extremes over an epoch's counted steps: by column a value of every row."""
    means = (sums.means.double() / sums.steps).tolist()
    return {
        **dict(zip(means_of(stack), means, strict=True)),
        "gamma/min": _only(sums.gamma_min.tolist(), step_counts),
        "gamma/max": _only(sums.gamma_max.tolist(), step_counts),
    }


def _only(values: Sequence[Any], counts: Sequence[object]) -> list[Any]:
    """The values of rows that count, None for the others."""
    return [value if count else None for value, count in zip(values, counts, strict=True)]


def _known(values: Sequence[Any]) -> Sequence[Any]:
    """None for what is not defined: a mean over no step, a bound that the paper does not claim."""
    return [None if value != value else value for value in values]  # noqa: PLR0124  # only NaN is not itself


def _outcome(config: TrialConfig, history: HistoryRow) -> Literal["running", "finished", "diverged"]:
    if history["partial"]:
        return "diverged"
    return "finished" if history["epoch"] == config.epochs else "running"


def _checkpointer(
    stack: Stack, row: int, outcome: str, whole: Sequence[torch.Tensor], rows: list[HistoryRow], epoch: int
) -> Callable[[], Checkpoint]:
    """What makes the row's checkpoint of now, whenever it is called: most are never asked for."""

    def checkpoint() -> Checkpoint:
        history = rows[:epoch]  # `rows` grows with every epoch
        state = stack.row_state(row, whole)
        return {
            "format": CHECKPOINT_FORMAT,
            "trial_id": stack.configs[row].trial_id,
            "width": stack.width,
            "epoch": len(history),
            "outcome": outcome,
            "row": {name: tensor.detach().cpu().clone() for name, tensor in state.items()},
            "history": history,
        }

    return checkpoint


def _restore(stack: Stack, checkpoints: Sequence[Checkpoint | None], rows: int) -> int:
    """Load the rows; returns how many epochs they have completed."""
    epochs = {0 if c is None else int(c["epoch"]) for c in checkpoints}
    assert len(checkpoints) == rows and len(epochs) == 1, "rows of a group stand at the same epoch"
    for row, checkpoint in enumerate(checkpoints):
        if checkpoint is not None:
            assert checkpoint["trial_id"] == stack.configs[row].trial_id
            assert checkpoint["width"] == stack.width, "a trial keeps the width of its first start"
            stack.load_row(row, checkpoint["row"])
    return epochs.pop()
