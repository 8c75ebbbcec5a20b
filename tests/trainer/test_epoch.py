"""The steps of one epoch: read the stop flag, and seed what draws."""

from __future__ import annotations

from pathlib import Path

import torch

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.rehearsal import refusal
from polysweep.trainer.train import train
from tests.support.lab import lab as lab
from tests.support.project import TINY
from tests.support.training import by_row, configs


def test_a_module_that_draws_as_it_trains_is_seeded_and_resumes_bitwise(lab: Path) -> None:
    (row, other) = (TrialConfig.parse({**TINY, "model": "steps:Noisy", "seed": seed}) for seed in (0, 1))
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    whole = list(train([row]))
    assert torch.equal(torch.rand(1), expected), "the global state is left alone"
    first = next(train([row]))
    rest = list(train([row], checkpoints=[first[0].checkpoint()]))
    assert by_row([first, *rest], 0) == by_row(whole, 0)
    assert by_row(whole, 0) != by_row(list(train([other])), 0)
    captured = list(train([row], capture=lambda work: work))
    assert by_row(captured, 0) == by_row(whole, 0), "neither warm-up nor capture draws"
    assert "randomness" in refusal(row)


def test_the_stop_flag_is_read_between_mini_batches() -> None:
    (config,) = configs({"batch_size": 64})
    calls = iter(range(10_000))
    done = list(train([config], stop=lambda: next(calls) >= 30))  # 23 mini-batches an epoch
    assert [reports[0].epoch for reports in done] == [1]
    assert next(calls) == 31, "asked before every mini-batch, and no more after the answer"
