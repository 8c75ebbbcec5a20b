"""The training loop: reports, checkpoints, interruption, divergence."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys

import pytest
import torch

from polysweep.trainer.history import CALIBRATION_COLUMNS, HISTORY_COLUMNS
from polysweep.trainer.train import train, use_settings_of
from tests.support.training import by_row, configs


def test_one_report_per_epoch_and_row_with_every_column() -> None:
    epochs = list(train(configs({"rho": 0.1}, {"rho": 0.2, "optimizer": "sam"})))
    assert [[r.row for r in reports] for reports in epochs] == [[0, 1]] * 4
    assert [reports[0].outcome for reports in epochs] == ["running"] * 3 + ["finished"]
    last = epochs[-1][0].history
    assert tuple(last) == (*HISTORY_COLUMNS, *CALIBRATION_COLUMNS)
    assert [r[0].history["step"] for r in epochs] == [6, 12, 18, 24]
    assert all(last[name] is None for name in ("val/loss", "val/top1", "val/top5"))
    assert 0 < last["gamma/min"] <= last["gamma/mean"] <= last["gamma/max"] <= 1
    assert 0 < last["test/ece"] < 1
    assert 0 <= last["test/top1"] <= last["test/top5"] <= 1
    assert last["ascent_gain"] > 0 and last["seconds"] > 0 and last["images_per_second"] > 0


@pytest.mark.parametrize(
    ("model", "width"),
    [("mlp", 1), ("mlp", 3), ("resnet8", 1), pytest.param("resnet8", 3, marks=pytest.mark.long)],
)
def test_continuing_from_a_checkpoint_is_bitwise_the_uninterrupted_run(model: str, width: int) -> None:
    rows = configs(*({"rho": 0.1 * (i + 1), "seed": i} for i in range(width)), model=model, momentum=0.5)
    whole = list(train(rows))
    first = list(itertools.islice(train(rows), 2))
    saved = []
    for report in first[-1]:
        buffer = io.BytesIO()
        torch.save(report.checkpoint(), buffer)
        saved.append(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    rest = list(train(rows, checkpoints=saved))
    for row in range(width):
        assert by_row(first + rest, row) == by_row(whole, row)
        a, b = whole[-1][row].checkpoint()["row"], rest[-1][row].checkpoint()["row"]
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_checkpoint_is_of_its_epoch_whenever_it_is_taken() -> None:
    (config,) = configs({})
    run = train([config])
    (report,) = next(run)
    at_once = report.checkpoint()
    next(run)
    later = report.checkpoint()
    assert later["epoch"] == at_once["epoch"] == 1
    assert torch.equal(later["row"]["theta"], at_once["row"]["theta"])


def test_rows_may_be_regrouped_and_padded_at_the_same_width() -> None:
    """Rows 0 and 2 of a stack of three go on in a stack of their own, padded to three."""
    rows = configs(*({"rho": 0.1 * (i + 1)} for i in range(3)))
    whole = list(train(rows))
    first = next(train(rows))
    saved = [first[2].checkpoint(), first[0].checkpoint()]
    rest = list(train([rows[2], rows[0]], width=3, checkpoints=saved))
    assert [[r.row for r in reports] for reports in rest] == [[0, 1]] * 3
    assert by_row(rest, 0) == by_row(whole[1:], 2)
    assert by_row(rest, 1) == by_row(whole[1:], 0)


def test_a_diverged_row_reports_its_partial_epoch_once_and_the_others_go_on() -> None:
    rows = configs({"scheduler": "constant", "lr": 0.05}, {"scheduler": "constant", "lr": 1e30, "seed": 1})
    epochs = list(train(rows))
    assert [[r.row for r in reports] for reports in epochs] == [[0, 1], [0], [0], [0]]
    diverged = epochs[0][1]
    assert diverged.outcome == "diverged"
    assert diverged.history["partial"] is True
    assert diverged.history["test/top1"] is None
    assert diverged.history["step"] < 6
    assert epochs[-1][0].outcome == "finished"
    alone = list(train([rows[0]], width=2))
    assert by_row(alone, 0) == by_row(epochs, 0)


def test_a_stack_in_which_all_rows_have_diverged_ends() -> None:
    rows = configs({"scheduler": "constant", "lr": 1e30}, {"scheduler": "constant", "lr": 1e35})
    assert [[r.outcome for r in reports] for reports in train(rows)] == [["diverged", "diverged"]]


def test_the_numbers_are_pinned() -> None:
    """Golden values. When they change, raise `trainer.config.NUMERICS` so that old and new trials never mix.

    The tolerance covers other CPUs and builds of torch; a change of the method moves them by far more.
    """
    (config,) = configs({"model": "resnet8", "precision": "float64", "weight_decay": 5e-4})
    last = list(train([config]))[-1][0].history
    assert {name: last[name] for name in GOLDEN} == pytest.approx(GOLDEN, rel=1e-6)


GOLDEN = {
    "train/loss": 0.165498347750988,
    "test/loss": 0.16316890499141443,
    "gamma/mean": 0.7632766734830736,
    "grad_norm/e": 0.46660728896193704,
    "ascent_gain": 0.01809885756622776,
}


def test_the_trainer_imports_neither_sweeps_nor_analysis_nor_ray() -> None:
    modules = "polysweep.trainer.train, polysweep.trainer.wandb_runs, polysweep.trainer.optimizers.sam"
    unwanted = ("polysweep.sweeps", "polysweep.analysis", "ray")
    code = f"import sys, {modules}; print([m for m in {unwanted} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_tf32_is_off_unless_the_config_asks_for_it() -> None:
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    try:
        for precision, expected in (("tf32", True), ("float32", False), ("bfloat16", False)):
            use_settings_of(precision)
            assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is expected
        assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
