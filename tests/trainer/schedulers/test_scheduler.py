"""The schedulers of a stack's rows: each row goes by its own."""

from __future__ import annotations

from pathlib import Path

import torch

from polysweep.trainer.train import train
from tests.support.lab import lab as lab
from tests.support.lab import own


def test_a_mixed_stack_selects_by_row(lab: Path) -> None:
    """DecSPS beside Polyak and a constant step size: a row is bitwise the same with other neighbours."""
    mine = own(scheduler="my_lab.rules:DecSPS")
    polyak, constant = own(), own(scheduler="constant", lr=0.1)
    together = list(train([mine, polyak, constant]))
    reordered = list(train([constant, constant, mine]))
    a, b = together[-1][0].checkpoint()["row"], reordered[-1][2].checkpoint()["row"]
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
