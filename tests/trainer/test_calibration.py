"""Which K and which share of a device are chosen, and that they are measured where trials run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from polysweep.trainer import calibration
from polysweep.trainer.calibration import _may_try, measure_shares, measure_widths
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.curve import Width
from tests.support.project import TINY

CONFIG = TrialConfig.parse(TINY)
GB = 10**9


def test_widths_are_measured_by_doubling() -> None:
    measured = measure_widths(CONFIG)
    assert measured is not None
    widths = [one.width for one in measured.widths]
    assert widths == [1, 2, 4, 8][: len(widths)] and len(widths) > 2
    assert all(one.seconds > 0 for one in measured.widths) and measured.free > GB // 10


@pytest.mark.parametrize(
    ("milliseconds", "goes_on"),
    [((13.9, 15.4, 13.9), True), ((12.1, 13.1, 10.2), True), ((152.0, 236.0, 237.0), False), ((151.0, 248.0), True)],
)
def test_wider_stacks_are_tried_until_two_are_clearly_slower(milliseconds: tuple[float, ...], goes_on: bool) -> None:
    """As measured on two cores: of a residual network, at 8x8 on a busy moment and a quiet one, and at 32x32."""
    widths = [Width(2**at, seconds / 1000, 10**6) for at, seconds in enumerate(milliseconds)]
    assert _may_try(2 * widths[-1].width, widths, GB, calibration.LIMIT_SECONDS) == goes_on


def test_a_fixed_width_is_the_only_one_measured() -> None:
    measured = measure_widths(CONFIG, fixed=3)
    assert measured is not None and [one.width for one in measured.widths] == [3] and measured.best(1.0) == 3


def test_no_wider_stack_is_begun_than_fits_into_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_memory_in_use", lambda _device, peak=False: 10 * GB if peak else 0)
    monkeypatch.setattr(calibration, "free_memory", lambda _device: 25 * GB)
    measured = measure_widths(CONFIG)
    assert measured is not None and [one.width for one in measured.widths] == [1]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory")])
def test_a_stack_that_runs_out_of_memory_ends_the_curve(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    real = calibration.Stack

    def stack(configs: list[TrialConfig], *rest: Any) -> Any:
        if len(configs) > 2:
            raise error
        return real(configs, *rest)

    monkeypatch.setattr(calibration, "Stack", stack)
    measured = measure_widths(CONFIG)
    assert measured is not None and [one.width for one in measured.widths] == [1, 2]


def test_a_width_that_would_take_too_long_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LIMIT_SECONDS", 0.0)
    measured = measure_widths(CONFIG)
    assert measured is not None and [one.width for one in measured.widths] == [1]


def test_an_interrupted_measurement_gives_nothing() -> None:
    calls = itertools.count()
    assert measure_widths(CONFIG, stop=lambda: next(calls) > 3) is None


def test_a_trial_that_diverges_at_once_is_measured_like_any_other() -> None:
    config = TrialConfig.parse({**TINY, "scheduler": "constant", "lr": 1e30})
    measured = measure_widths(config)
    assert measured is not None and len(measured.widths) > 1


@pytest.mark.long
def test_shares_are_measured_with_stacks_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "usable_cpus", lambda: 2)
    measured = measure_widths(CONFIG, fixed=2)
    assert measured is not None
    rates = measure_shares(CONFIG, measured, device="cpu", data="", threads=1)
    assert list(rates) == [1, 2] and all(rate > 0 for rate in rates.values())


@pytest.mark.long
def test_processes_of_which_one_cannot_start_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the second stack lacked memory: its task is loaded in the process itself."""
    monkeypatch.setattr(calibration, "usable_cpus", lambda: 2)
    measured = measure_widths(CONFIG, fixed=2)
    assert measured is not None
    wrong = CONFIG.model_copy(update={"task": "nothing"})
    with pytest.raises(Exception, match="nothing"):
        measure_shares(wrong, measured, device="cpu", data="", threads=1)
