"""The only training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import torch
from torch import Tensor

from trainer.config import TrialConfig
from trainer.data import Images, batches, epoch_order
from trainer.history import HISTORY_COLUMNS
from trainer.registry import TASKS
from trainer.stack import Stack, Step
from trainer.tasks import Classification

CHECKPOINT_FORMAT: Final = 1
EVALUATION_BATCH: Final = 512

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
) -> Iterator[list[Report]]:
    """Train the trials `configs` as one stack and yield, epoch by epoch, one report for every row still going.

    `width` is K (default: the number of trials); a shorter group is padded with copies whose results are dropped.
    `checkpoints` has one entry per trial, None to start it; all must stand at the same epoch. `stop` is read between
    mini-batches; when it returns True the epoch in flight is dropped and the iterator ends. A row that diverges
    reports its partial epoch once, with outcome `diverged`.
    """
    width = width or len(configs)
    assert len(configs) <= width, "a group is never wider than its stack"
    padded = [*configs, *[configs[-1]] * (width - len(configs))]
    stack = Stack(padded, load_task(configs[0]), device)
    epoch, steps = _restore(stack, checkpoints or [None] * len(configs), len(configs))
    real = torch.arange(width, device=stack.device) < len(configs)
    stack.active &= real
    config = configs[0]
    while epoch < config.epochs and bool(stack.active.any()):
        epoch += 1
        going = stack.active.tolist()
        epoch_result = _train_epoch(stack, epoch, steps, stop)
        if epoch_result is None:
            return
        steps += math.ceil(len(stack.task.train) / config.batch_size)
        yield _reports(stack, epoch, epoch_result, going[: len(configs)])


@lru_cache(maxsize=4)
def _load_task(name: str, val_fraction: float, options: tuple[tuple[str, Any], ...]) -> Classification:
    task: Classification = TASKS[name].load()(val_fraction, **dict(options))
    return task


def load_task(config: TrialConfig) -> Classification:
    """The config's task; loaded once per process, so that reused workers share it."""
    return _load_task(config.task, config.val_fraction, tuple(sorted(config.task_options.items())))


@dataclass
class _Epoch:
    """Sums over the counted steps of one epoch; every tensor is (K,)."""

    sums: Tensor  # (quantities, K)
    count: Tensor
    gamma_min: Tensor
    gamma_max: Tensor
    images: int
    training_seconds: float
    started: float
    first_step: int


def _train_epoch(stack: Stack, epoch: int, steps: int, stop: Callable[[], bool]) -> _Epoch | None:
    config = stack.configs[0]
    place: dict[str, Any] = {"device": stack.device, "dtype": stack.dtype}
    sums = torch.zeros(len(_MEANS), stack.width, **place)
    count = torch.zeros(stack.width, **place)
    gamma_min = torch.full((stack.width,), math.inf, **place)
    gamma_max = torch.full((stack.width,), -math.inf, **place)
    started = time.perf_counter()
    stack.step_sizes.start_epoch(epoch - 1)
    order = epoch_order([c.seed for c in stack.configs], epoch, len(stack.task.train))
    images_seen = 0
    for step, (images, labels) in enumerate(
        batches(stack.task.train, stack.task.normalise, order, config.batch_size), start=steps
    ):
        if stop():
            return None
        done = stack.step(images, labels, step)
        sums += torch.where(done.counted, _measure(stack.task, done, labels), 0)
        count += done.counted
        gamma = done.proposal.gamma.value
        gamma_min = torch.where(done.counted, torch.minimum(gamma_min, gamma), gamma_min)
        gamma_max = torch.where(done.counted, torch.maximum(gamma_max, gamma), gamma_max)
        images_seen += labels.shape[1]
        if stack.device.type == "cpu" and not done.counted.any():
            break  # elsewhere asking would be a sync in every step
    return _Epoch(sums, count, gamma_min, gamma_max, images_seen, time.perf_counter() - started, started, steps)


_MEANS: Final = (
    "train/loss",
    "train/top1",
    "train/top5",
    "gamma/mean",
    "gamma/cap_share",
    "gamma/zero_share",
    "grad_norm/x",
    "grad_norm/e",
    "sharpness",
)


def _measure(task: Classification, done: Step, labels: Tensor) -> Tensor:
    """This step's value of each of `_MEANS`: (quantities, K)."""
    p = done.proposal
    top1, top5 = task.hits(p.x.logits, labels)
    size = labels.shape[1]
    return torch.stack(
        [
            p.x.loss,
            top1 / size,
            top5 / size,
            p.gamma.value,
            p.gamma.capped.to(p.x.loss.dtype),
            p.gamma.zeroed.to(p.x.loss.dtype),
            p.norm_x,
            p.norm_e,
            p.e.loss - p.x.loss,
        ]
    )


def _reports(stack: Stack, epoch: int, result: _Epoch, going: Sequence[bool]) -> list[Report]:
    evaluated = _evaluate(stack, stack.task.val, "val") + _evaluate(stack, stack.task.test, "test")
    seconds = time.perf_counter() - result.started
    for _, values in evaluated:
        # A loss that is not finite on held-out images is divergence too: no table may average over it.
        stack.active &= torch.tensor(values, device=stack.device).isfinite()
    alive = stack.active.tolist()
    counts = [int(n) for n in result.count.tolist()]
    means = (result.sums.double() / result.count).tolist()
    low, high = result.gamma_min.tolist(), result.gamma_max.tolist()
    reports = []
    for row, was_going in enumerate(going):
        if not was_going:
            continue
        history: HistoryRow = dict.fromkeys(HISTORY_COLUMNS)
        history |= {"epoch": epoch, "step": result.first_step + counts[row], "partial": not alive[row]}
        if counts[row]:
            history |= {name: values[row] for name, values in zip(_MEANS, means, strict=True)}
            history |= {"gamma/min": low[row], "gamma/max": high[row]}
        if alive[row]:
            history |= {name: values[row] for name, values in evaluated}
        history |= {"seconds": seconds, "images_per_second": result.images / result.training_seconds}
        last = epoch == stack.configs[row].epochs
        outcome: Literal["running", "finished", "diverged"] = (
            "diverged" if not alive[row] else "finished" if last else "running"
        )
        reports.append(Report(row, epoch, history, outcome, _checkpointer(stack, row, epoch, outcome)))
    return reports


def _evaluate(stack: Stack, data: Images | None, prefix: str) -> list[tuple[str, list[float]]]:
    """Mean loss and accuracies on a held-out set: values of shape (K,)."""
    if data is None:
        return []
    loss = torch.zeros(stack.width, device=stack.device, dtype=stack.dtype)
    top1, top5 = torch.zeros_like(loss), torch.zeros_like(loss)
    chunks = zip(data.images.split(EVALUATION_BATCH), data.labels.split(EVALUATION_BATCH), strict=True)
    for images, labels in chunks:
        logits = stack.evaluate(stack.task.normalise(images))
        shared = labels.expand(stack.width, -1)
        loss += stack.task.losses(logits, shared) * len(labels)
        hits = stack.task.hits(logits, shared)
        top1, top5 = top1 + hits[0], top5 + hits[1]
    names = (f"{prefix}/loss", f"{prefix}/top1", f"{prefix}/top5")
    return [(n, [sum_ / len(data) for sum_ in v.tolist()]) for n, v in zip(names, (loss, top1, top5), strict=True)]


def _checkpointer(stack: Stack, row: int, epoch: int, outcome: str) -> Callable[[], Checkpoint]:
    state = stack.row_state(row)  # views: a step replaces the stack's tensors and never writes to them

    def checkpoint() -> Checkpoint:
        return {
            "format": CHECKPOINT_FORMAT,
            "trial_id": stack.configs[row].trial_id,
            "width": stack.width,
            "epoch": epoch,
            "outcome": outcome,
            "row": {name: tensor.detach().cpu().clone() for name, tensor in state.items()},
        }

    return checkpoint


def _restore(stack: Stack, checkpoints: Sequence[Checkpoint | None], rows: int) -> tuple[int, int]:
    """Load the rows; returns the epochs and steps that lie behind them."""
    epochs = {0 if c is None else int(c["epoch"]) for c in checkpoints}
    assert len(checkpoints) == rows and len(epochs) == 1, "rows of a group stand at the same epoch"
    for row, checkpoint in enumerate(checkpoints):
        if checkpoint is not None:
            assert checkpoint["trial_id"] == stack.configs[row].trial_id
            assert checkpoint["width"] == stack.width, "a trial keeps the width of its first start"
            stack.load_row(row, checkpoint["row"])
    epoch = epochs.pop()
    return epoch, epoch * math.ceil(len(stack.task.train) / stack.configs[0].batch_size)
