"""Accuracy by the severity of a corruption: of the chosen runs, with their counts; and label noise down in tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.severity import severity_cells, severity_table, severity_tables
from polysweep.analysis.tables.writers import markdown
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import SEVERITIES
from tests.support.made import SPEC, by_lr, corrupted, sweep


def test_a_row_has_the_mean_of_the_chosen_runs_at_the_last_epoch(tmp_path: Path) -> None:
    made = corrupted(sweep(tmp_path, by_lr))
    cells = severity_cells(select(made))
    assert list(dict.fromkeys(cells["corruption"])) == ["noise", "contrast"]
    one = cells[(cells["rho"] == 0.1) & (cells["scheduler"] == "constant") & (cells["corruption"] == "noise")]
    assert one["severity"].tolist() == [0, 1, 2, 3, 4, 5]
    assert one["mean"].tolist() == pytest.approx([0.85, 0.84, 0.83, 0.82, 0.81, 0.80]), "lr = 0.1; the last epoch"
    assert one["std"].tolist() == pytest.approx([0.01] * 6) and one["n"].tolist() == [3] * 6
    again = severity_cells(select(made, metric="test/loss"))
    assert again["mean"].tolist() == cells["mean"].tolist(), "whatever is reported"


def test_a_diverged_seed_is_counted_and_a_run_without_a_measurement_is_missing(tmp_path: Path) -> None:
    made = sweep(tmp_path, lambda c: "diverged" if (c.rho, c.scheduler, c.seed) == (0.4, "polyak", 1) else by_lr(c))
    measured = corrupted(made)
    runs = measured.runs
    lost = (runs["rho"] == 0.1) & (runs["scheduler"] == "polyak") & (runs["seed"] == 0)
    runs = runs.assign(**{"last/test/noise-5": runs["last/test/noise-5"].mask(lost)})
    selection = select(replace(measured, runs=runs))
    table = severity_table(selection)
    assert table.index.names == ["corruption", "rho", "scheduler"] and list(table.columns) == list("012345")
    assert table.loc[("noise", "0.1", "polyak"), "5"] == "85.50 +- 0.71 (2/3, 1 missing)"
    assert table.loc[("noise", "0.1", "polyak"), "4"] == "86.00 +- 1.00"
    assert table.loc[("noise", "0.4", "polyak"), "0"] == "87.00 +- 1.41 (2/3, 1 diverged)"
    noise, contrast = severity_tables(selection)
    assert markdown(noise).startswith(
        "made (corruption = noise): test/top1 (%) at the last epoch, mean +- sample std over n = 3 seeds, "
        "selected on test; by severity, 0 is the clean test set\n\n| rho | scheduler | 0 "
    )
    assert [str(one) for one in contrast.rows[0][:4]] == ["0.1", "constant", "85.00 +- 1.00", "83.00 +- 1.00"]


def test_an_undecided_cell_has_no_mean(tmp_path: Path) -> None:
    made = sweep(tmp_path, lambda c: "new" if (c.lr, c.seed, c.rho) == (0.1, 0, 0.1) else by_lr(c))
    undecided = severity_table(select(corrupted(made))).loc[("noise", "0.1", "constant"), "3"]
    assert undecided.startswith("undecided: ")


def test_runs_without_measurements_have_no_table(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr))
    assert severity_tables(selection) == []
    with pytest.raises(UserError, match=r"^severity: no run of made has an accuracy on corrupted images$"):
        severity_cells(selection)


def test_a_corruption_can_be_reported_at_the_last_epoch_in_percent(tmp_path: Path) -> None:
    made = corrupted(sweep(tmp_path, by_lr))
    selection = select(made, metric="test/noise-5")
    assert selection.epoch == "last" and selection.is_maximal is True
    assert "| 0.1 | 80.00 +- 1.00 | **85.00 +- 1.00** |" in render(selection, "markdown")
    with pytest.raises(UserError, match="'test/noise-5' was measured at the last epoch; leave out --epoch best"):
        select(made, metric="test/noise-5", epoch="best")


def noisy(folder: Path, **changes: object) -> Selection:
    parameters = {**SPEC["parameters"], "label_noise": {"values": [0, 0.2, 0.6]}}
    return select(sweep(folder, lambda c: [v - c.label_noise / 2 for v in by_lr(c)], parameters=parameters, **changes))


def test_label_noise_goes_down_beside_the_radius_and_makes_no_further_tables(tmp_path: Path) -> None:
    selection = noisy(tmp_path)
    lines = render(selection, "markdown").splitlines()
    assert [line for line in lines if line.startswith("| ")] == [
        "| rho | label_noise | constant      | polyak            |",
        "| 0.1 | 0.0         | 90.00 +- 1.00 | **95.00 +- 1.00** |",
        "| 0.1 | 0.2         | 80.00 +- 1.00 | **85.00 +- 1.00** |",
        "| 0.1 | 0.6         | 60.00 +- 1.00 | **65.00 +- 1.00** |",
        "| 0.4 | 0.0         | 87.00 +- 1.00 | **92.00 +- 1.00** |",
        "| 0.4 | 0.2         | 77.00 +- 1.00 | **82.00 +- 1.00** |",
        "| 0.4 | 0.6         | 57.00 +- 1.00 | **62.00 +- 1.00** |",
    ]
    before = select(
        sweep(tmp_path / "before", by_lr, parameters={"label_noise": {"values": [0, 0.2]}, **SPEC["parameters"]})
    )
    assert "| label_noise | rho | constant " in render(before, "markdown"), "in the order of the spec"
    header, first, *_ = render(selection, "csv").splitlines()
    assert dict(zip(header.split(","), first.split(","), strict=True))["label_noise"] == "0.0"


def test_ece_is_a_loss_in_percent(tmp_path: Path) -> None:
    made = sweep(tmp_path, by_lr)
    runs = made.runs.assign(**{"best/test/ece": made.runs["best/test/loss"], "last/test/ece": 0.5})
    selection = select(replace(made, runs=runs), metric="test/ece")
    assert selection.is_maximal is False
    text = render(selection, "markdown")
    assert "test/ece (%)" in text and "| 0.1 | 10.00 +- 1.00 | **5.00 +- 1.00** |" in text


def test_what_was_measured_at_the_best_epoch_is_shown_of_that_epoch(tmp_path: Path) -> None:
    """With `launch.keep: best`: also where the best epoch of some runs happens to be the last."""
    made = corrupted(sweep(tmp_path, by_lr))
    at_best = {name: name.replace("last/test/", "best/test/") for name in made.runs if "last/test/noise" in str(name)}
    kept = [name for name in made.runs if "last/test/contrast" not in str(name)]
    best = replace(
        made,
        runs=made.runs[kept].rename(columns=at_best),
        protocol=replace(made.protocol, probed={f"test/noise-{n}": "best" for n in SEVERITIES}),
    )
    cells = severity_cells(select(best))
    assert set(cells["corruption"]) == {"noise"} and set(cells["n"]) == {3} and not cells["missing"].any()
    clean = cells[(cells["severity"] == 0) & (cells["scheduler"] == "polyak") & (cells["rho"] == 0.1)]
    assert clean["mean"].item() == pytest.approx(0.95), "the accuracy of the best epoch, 0.05 above the last"
    assert "at the best epoch" in severity_tables(select(best))[0].caption
