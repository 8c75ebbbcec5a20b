"""The captured step, as far as that goes without a GPU: fixed tensors, the same numbers."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.stack.cuda_graph import Replay
from polysweep.trainer.train import train
from tests.support import mini_cifar
from tests.support.project import TINY
from tests.support.recorder import Recorder
from tests.support.training import by_row, configs


@pytest.mark.parametrize("width", [1, 3])
def test_a_captured_training_is_bitwise_the_eager_one(width: int) -> None:
    """With momentum, a cosine row and a radius schedule: everything that changes between two steps."""
    rows = configs(
        *({"seed": n, **({"scheduler": "cosine", "lr": 0.1} if n else {}), "momentum": 0.4 * n} for n in range(width)),
        model="resnet8",
        rho_schedule="inverse_sqrt",
    )
    recorder = Recorder()
    eager, captured = list(train(rows)), list(train(rows, capture=recorder))
    assert recorder.captures == 2, "one for whole mini-batches, one for an epoch's last"
    assert recorder.replays == 4 * 6
    for row in range(width):
        assert by_row(captured, row) == by_row(eager, row)
        a, b = eager[-1][row].checkpoint()["row"], captured[-1][row].checkpoint()["row"]
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_augmentation_is_inside_the_captured_step(tmp_path: Path) -> None:
    mini_cifar.write_archives(tmp_path)
    values = {**TINY, "task": "tests.support.mini_cifar:cifar10", "augmentation": "crop+flip+cutout", "batch_size": 32}
    row = TrialConfig.parse(values)
    eager, captured = list(train([row], data=tmp_path)), list(train([row], data=tmp_path, capture=Recorder()))
    assert by_row(captured, 0) == by_row(eager, 0)


def test_a_captured_row_that_diverges_is_frozen_and_the_others_go_on() -> None:
    rows = configs({"scheduler": "constant", "lr": 0.05}, {"scheduler": "constant", "lr": 1e30, "seed": 1})
    eager, captured = list(train(rows)), list(train(rows, capture=Recorder()))
    for row in range(2):
        assert by_row(captured, row) == by_row(eager, row)
    assert captured[0][1].outcome == "diverged"


@pytest.mark.parametrize("batch", [100, 10])
def test_a_captured_convex_training_is_the_eager_one(batch: int) -> None:
    """Hits, averages, violations, a row that overflows at a record; mean step sizes are added up in another order."""
    base = {"task": "ridge", "model": "linear", "optimizer": "usam", "batch_size": batch, "epochs": 40}
    options = {"record_every": 5, "check": True}
    rules = [
        {"scheduler": "polyak-deterministic", "rho": 0.2},
        {"scheduler": "constant", "rho": 0.0, "lr": 2000.0},
        {"scheduler": "polyak", "rho": 0.1, "seed": 1},
    ]
    rows = [TrialConfig.parse({**base, "task_options": options, **rule}) for rule in rules]
    eager, captured = list(train(rows)), list(train(rows, capture=Recorder()))
    for row in range(3):
        a, b = by_row(eager, row), by_row(captured, row)
        assert [one.pop("gamma/mean") for one in b] == pytest.approx([one.pop("gamma/mean") for one in a], rel=1e-14)
        assert a == b
    assert any(report.row == 1 and report.outcome == "diverged" for reports in captured for report in reports)
    last = by_row(captured, 0)[-1]
    assert batch == 10 or (last["iterations/1e-6"] and last["step"] == 200)


def test_a_checkpoint_of_a_captured_stack_is_of_its_epoch_whenever_it_is_taken() -> None:
    """There a step overwrites the tensors, which elsewhere it replaces."""
    rows = configs({})
    late = [reports[0] for reports in itertools.islice(train(rows, capture=Recorder()), 3)]
    at_once = [reports[0].checkpoint() for reports in itertools.islice(train(rows), 3)]
    for report, expected in zip(late, at_once, strict=True):
        assert torch.equal(report.checkpoint()["row"]["theta"], expected["row"]["theta"])


def test_warm_up_and_capture_are_no_steps() -> None:
    state = [torch.zeros(2)]

    def step(amount: torch.Tensor) -> None:
        state[0] = state[0] + amount

    def put(tensors: list[torch.Tensor]) -> None:
        state[:] = tensors

    replay = Replay(step, lambda: state, put, Recorder())
    for amount in (1.0, 10.0):
        replay(torch.full((2,), amount))
    assert state[0].tolist() == [11.0, 11.0]


def test_a_finished_runner_holds_no_graph() -> None:
    """On a GPU a graph keeps its memory: a cycle would keep it until some later garbage collection."""
    gc.collect()
    gc.disable()
    try:
        found = []

        def capture(work: Callable[[], None]) -> Callable[[], None]:
            found.append(weakref.ref(work))
            return work

        for _ in train(configs({}), capture=capture):
            pass
        assert len(found) == 2 and [ref() for ref in found] == [None, None]
    finally:
        gc.enable()
