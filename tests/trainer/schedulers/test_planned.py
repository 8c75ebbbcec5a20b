"""Schedulers of torch.optim by the same names and options: every step's size against torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.planned import one_cycle, warmup_cosine
from polysweep.trainer.schedulers.scheduler import StepContext, StepSizes
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.train import train
from tests.support.project import TINY
from tests.support.recorder import Recorder
from tests.support.training import by_row

EPOCHS, PER_EPOCH, LR = 10, 7, 0.3
TOTAL = EPOCHS * PER_EPOCH
BASE = {**TINY, "optimizer": "sgd", "rho": None, "lr": LR, "epochs": EPOCHS}


def after_warm_up(optimizer: torch.optim.Optimizer, warmup: int) -> lr_scheduler.LRScheduler:
    cosine = lr_scheduler.CosineAnnealingLR(optimizer, TOTAL - warmup, eta_min=0.01)
    rise = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=warmup)
    return lr_scheduler.SequentialLR(optimizer, [rise, cosine], milestones=[warmup])


RULES: dict[str, tuple[dict[str, Any], Any, bool]] = {
    "step": (
        {"scheduler": "step", "scheduler_options": {"step_size": 3, "gamma": 0.5}},
        lambda o: lr_scheduler.StepLR(o, step_size=3, gamma=0.5),
        False,
    ),
    "multistep": (
        {"scheduler": "multistep", "scheduler_options": {"milestones": [2, 3, 9]}},
        lambda o: lr_scheduler.MultiStepLR(o, milestones=[2, 3, 9]),
        False,
    ),
    "warm-up": (
        {"scheduler": "warmup-cosine", "lr_min": 0.01, "scheduler_options": {"warmup_epochs": 2, "start_factor": 0.1}},
        lambda o: after_warm_up(o, 2 * PER_EPOCH),
        True,
    ),
    "one-cycle": (
        {"scheduler": "one-cycle"},
        lambda o: lr_scheduler.OneCycleLR(o, LR, TOTAL, cycle_momentum=False),
        True,
    ),
    "one-cycle with options": (
        {"scheduler": "one-cycle", "scheduler_options": {"pct_start": 0.01, "div_factor": 2, "final_div_factor": 10}},
        lambda o: lr_scheduler.OneCycleLR(
            o, LR, TOTAL, pct_start=0.01, div_factor=2, final_div_factor=10, cycle_momentum=False
        ),
        True,
    ),
}  # fmt: skip


def configs(**changes: Any) -> list[TrialConfig]:
    """A row of each rule, a second one with half its lr, and one of another scheduler."""
    rows = [{**BASE, **values} for values, _, _ in RULES.values()]
    halved = [{**row, "lr": LR / 2} for row in rows]
    return [TrialConfig.parse({**row, **changes}) for row in (*rows, *halved, {**BASE, "scheduler": "cosine"})]


def gammas(rows: list[TrialConfig], first_epoch: int = 0) -> torch.Tensor:
    """Of every step, (steps, K)."""
    sizes = StepSizes(rows, torch.device("cpu"), torch.float64, PER_EPOCH)
    zero = torch.zeros(len(rows), 1, dtype=torch.float64)
    values = []
    for epoch in range(first_epoch, EPOCHS):
        sizes.start_epoch(epoch)
        for t in range(epoch * PER_EPOCH, (epoch + 1) * PER_EPOCH):
            context = StepContext(LossAndGrad(zero[:, 0], zero, zero), zero, torch.tensor(t), zero)
            values.append(sizes.gamma(context, {})[0].value)
    return torch.stack(values)


def theirs(name: str, lr: float = LR) -> list[float]:
    """torch's learning rate of every step."""
    _, make, by_step = RULES[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    rule = make(optimizer)
    values = []
    for t in range(TOTAL):
        values.append(float(rule.get_last_lr()[0]))
        optimizer.step()
        if t + 1 < TOTAL and (by_step or (t + 1) % PER_EPOCH == 0):
            rule.step()
    return values


@pytest.mark.parametrize("name", RULES)
@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step:UserWarning")
def test_every_step_size_is_that_of_torch(name: str) -> None:
    """In one stack of all rules; torch multiplies from step to step, which rounds."""
    rows = configs()
    ours = gammas(rows)
    index = list(RULES).index(name)
    assert ours[:, index].tolist() == pytest.approx(theirs(name), rel=1e-12)
    assert len(set(ours[:, index].tolist())) > 2


def test_a_row_is_the_same_whoever_its_neighbours_are_and_from_whatever_epoch() -> None:
    rows = configs()
    together = gammas(rows)
    assert torch.equal(together, gammas(rows[::-1]).flip(1))
    assert torch.equal(together[:, 3], gammas([rows[3]])[:, 0])
    assert torch.equal(together[4 * PER_EPOCH :], gammas(rows, first_epoch=4))


def test_captured_and_resumed_trainings_are_bitwise_the_eager_one() -> None:
    rows = configs(batch_size=256)
    eager = list(train(rows))
    captured = list(train(rows, capture=Recorder()))
    halfway = [report.checkpoint() for report in eager[4]]
    resumed = list(train(rows, checkpoints=halfway))
    for row in range(len(rows)):
        assert by_row(eager, row) == by_row(captured, row)
        assert by_row(eager, row)[5:] == by_row(resumed, row)
    steps = [report.history["gamma/max"] for report in (epoch[0] for epoch in eager)]
    assert steps == pytest.approx([LR * 0.5 ** (epoch // 3) for epoch in range(EPOCHS)], rel=1e-6)


def test_a_step_never_asks_the_device_for_a_value() -> None:
    rows = configs(model="resnet8")
    stack = Stack(rows, load_task(rows[0]), "meta")
    EpochRunner(stack).rehearse(64)
    assert stack.theta.is_meta


@pytest.mark.parametrize("pct_start", [0.0, 0.1, 0.25, 0.5])
def test_one_cycle_is_defined_at_every_step_of_a_short_training(pct_start: float) -> None:
    """10 steps: with 0.1 the first step is the top, where torch divides 0 by 0."""
    values = [one_cycle(1.0, pct_start, 25.0, 1e4, total=10, t=t) for t in range(10)]
    assert values[-1] == pytest.approx(1 / 25 / 1e4, rel=1e-9)
    assert max(values) <= 1.0 and (pct_start != 0.1 or values[0] == 1.0)


def test_warm_up_may_be_a_part_of_an_epoch_or_none() -> None:
    assert [warmup_cosine(1.0, 0.0, 0.5, 2.5, 10, t) for t in range(3)] == pytest.approx([0.5, 0.7, 0.9])
    assert warmup_cosine(1.0, 0.0, 0.5, 0.0, 10, 0) == 1.0
    assert warmup_cosine(1.0, 0.25, 0.5, 4.0, 10, 7) == pytest.approx(0.625)
