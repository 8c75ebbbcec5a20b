"""The commands table, plot, compare, report, theory and dashboard, as they are called."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from polysweep.analysis.commands import app
from polysweep.analysis.tables.selection import Selection
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, CAPS, by_lr, foreign, sweep


@pytest.mark.usefixtures("fresh_client")
def test_the_commands_work_on_what_was_pulled(
    wandb_server: Wandb, run_here: Callable[..., Any], tmp_path: Path
) -> None:
    wandb_server.load("p", foreign())
    done = run_here(
        "pull", ADDRESS, "--map", "rho=optimizer.radius", "--map", "scheduler=optimizer.name",
        "--map", "seed=random_seed", "--metric", "val_loss", "--tuned", "lr", "--ignore", "host",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{ADDRESS}: 16 runs: 16 finished; 48 history rows",
        "cells: scheduler, rho; tuned: lr; selected by val_loss (minimize)",
        f"polysweep table {ADDRESS} shows them",
    ]
    wandb_server.fail(500)  # what was pulled needs no server
    for command in (["table"], ["plot", "--out", "plots"], ["report", "--out", "r.html"], ["dashboard", "--dry-run"]):
        done = run_here(command[0], ADDRESS, *command[1:])
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").exists() and (tmp_path / "plots" / "robustness.png").exists()


def test_the_commands_take_cols_by_and_only(tmp_path: Path, optimizers: Selection) -> None:
    source = optimizers.pulled.protocol.source
    shared = ["optimizers", "--store", source, "--cache", str(tmp_path / "cache"), "--only", "weight_decay=0"]
    table = CliRunner().invoke(app, ["table", *shared, "--only", "rho=0.1", "--cols", "optimizer,scheduler"])
    assert table.exit_code == 0 and "| rho | usam constant " in table.output and "0.0005" not in table.output
    options = [
        "--only",
        "optimizer=sam",
        "--only",
        "scheduler=polyak",
        "--only",
        "rho=0.1,0.4",
        "--kinds",
        "svg",
        "--out",
        str(tmp_path / "out"),
    ]
    plot = CliRunner().invoke(app, ["plot", *shared, *options, "--by", "scheduler"])
    assert plot.exit_code == 0, plot.output
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert "robustness-scheduler-polyak-weight_decay-0-optimizer-sam.svg" in written
    assert not any("0.0005" in name or "usam" in name for name in written)


def test_the_commands_take_layouts_metrics_and_published_numbers(
    tmp_path: Path, run_here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(tmp_path / "store", by_lr, **CAPS)
    monkeypatch.chdir(tmp_path)

    def of(*arguments: str) -> Any:
        return CliRunner().invoke(app, [arguments[0], "made", "--store", "store", *arguments[1:]])

    shown = of("table", "--rows", "optimizer,rho", "--cols", "scheduler,gamma_b", "--epoch", "last")
    assert shown.exit_code == 0 and "| optimizer | rho | constant -" in shown.stdout
    assert "warning: lr: in 4 of 16 cells the chosen value is at the edge of its grid" in shown.stderr
    for arguments, message in (
        (("table", "--rows", "rhoo"), "--rows: unknown field 'rhoo'; did you mean"),
        (("table", "--select-by", "val/top1"), "--select-by: val/top1 was not measured"),
        (("table", "--only", "rho"), "--only: 'rho'; expected FIELD=VALUE"),
        (("plot", "--out", "p", "--kinds", "gif"), "--kinds: 'gif'"),
        (("plot", "--out", "p", "--by", "rho"), "--by: 'rho' is the horizontal axis"),
        (("compare", "--published", "cifar"), "none of its cells is in made"),
        (("plot", "--out", "p", "--published", "cifar"), "--published cifar: none of its tables is in made"),
        (("compare", "--published", "nothing.csv"), "--published: no file 'nothing.csv'"),
        (("compare", "--published", "cifar", "--where", "gamma_b"), "--where: 'gamma_b'; expected FIELD=VALUE"),
        (("report", "--out", "r.html", "--published", "no.csv"), "--published: no file 'no.csv'"),
    ):
        refused = of(*arguments).exception
        assert isinstance(refused, UserError) and message in str(refused) and "\n" not in str(refused)
    done = run_here("table", "made", "--store", tmp_path / "store", "--format", "pdf")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "--format: 'pdf'; expected one of" in done.stderr


def test_the_command_prints_both_tables_and_writes_figures_and_data(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from polysweep.analysis.commands import theory

    theory("theory-small", tmp_path / "out", str(small), str(tmp_path / "cache"), kinds="svg", width="column")
    out, files = capsys.readouterr()
    written = {Path(line).name for line in files.split()}
    assert {"methods.csv", "checks.csv"} < written and all((tmp_path / "out" / name).stat().st_size for name in written)
    stem = "ridge-consistent-True-lambda_r-0.0-full-batches"
    assert {
        f"{kind}-{stem}.{end}" for kind in ("suboptimality", "distance", "cesaro") for end in ("svg", "csv")
    } < written
    data = pd.read_csv(tmp_path / "out" / f"suboptimality-{stem}.csv")
    with_bound = data[data["method"] == "usam polyak-deterministic rho=2.5"]
    assert with_bound["mean"].iloc[0] == 1 and (with_bound["bound"] >= with_bound["mean"]).all()
    assert data[data["method"] == "khanh2024"]["bound"].isna().all()
    assert (pd.read_csv(tmp_path / "out" / f"distance-{stem}.csv")["method"] != "khanh2024").all()
    assert re.search(r"ridge.*full batches: L = 0.1, L_max = 3.56176, mu = 0.001, f\* = 0, sigma\^2", out)
    assert re.search(r"\| Theorem 3.1, strongly convex +\| 0\.\d{9} \| 0.998593750 \| 0 ", out)
    assert "**does not hold**" not in out and "violations of" not in out
