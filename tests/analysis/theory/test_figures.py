"""`polysweep theory`: the command, its figures and pages, and the specs of the paper's grids."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from polysweep import pull, select
from polysweep.analysis.theory.curves import MethodCurve
from polysweep.analysis.theory.figures import theory_figures
from polysweep.analysis.theory.lines import lines_of
from polysweep.analysis.theory.text import render_theory
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.convex.problem import problem_of
from polysweep.trainer.errors import UserError
from tests.support.made import sweep as made_sweep
from tests.support.project import ROOT, copy_of_the_project
from tests.support.theory import SMALL, trained
from tests.support.theory import lines as lines
from tests.support.theory import small as small


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


def test_the_figures_are_drawn_on_log_axes_and_hide_nothing(lines: list[MethodCurve]) -> None:
    for width in ("page", "column"):
        for drawn in theory_figures(lines, "small", width):
            (ax,) = drawn.figure.axes
            assert ax.get_yscale() == "log" and ax.get_xlabel() == "iteration"
            drawn.figure.canvas.draw()  # type: ignore[attr-defined]
            box = drawn.figure.bbox
            for artist in (*drawn.figure.legends, drawn.figure._suptitle):  # type: ignore[attr-defined]
                inside = artist.get_window_extent()
                assert inside.x0 >= box.x0 - 1 and inside.x1 <= box.x1 + 1, (width, drawn.name)
    with pytest.raises(UserError, match="--width: 'poster'"):
        list(theory_figures(lines, "small", "poster"))


def test_cells_that_diverged_and_methods_that_differ_in_a_setting_are_told_apart(tmp_path: Path) -> None:
    text = """
name: odd
metric: {name: suboptimality/relative, goal: minimize}
parameters: {task: {value: ridge}, model: {value: linear}, optimizer: {value: usam}, batch_size: {value: 100},
  epochs: {value: 120}}
variants:
  - {scheduler: {value: oikonomou2025}, scheduler_options.setting: {values: [deterministic, stochastic]}}
  - {scheduler: {value: polyak}, rho: {value: 1.0}, rho_schedule: {value: inverse}}
  - {scheduler: {value: polyak}, rho: {value: 1.0}, lower_bound: {value: 0.5}}
  - {scheduler: {value: constant}, rho: {value: 0.0}, lr: {values: [2000.0, 1.0e+200]}}
seeds: 2
"""
    trained(text, tmp_path / "store")
    pulled = pull("odd", store=Store(str(tmp_path / "store")), cache=tmp_path / "cache")
    assert set(pulled.runs[pulled.runs["scheduler"] == "constant"]["outcome"]) == {"diverged"}
    found = lines_of(select(pulled, epoch="last"))
    labels = [line.label for line in found]
    assert len(set(labels)) == 6 and {"oikonomou2025 setting=deterministic", "oikonomou2025 setting=stochastic"} < set(
        labels
    )
    assert not any(line.statements for line in found), (
        "no theorem is about a cap with a decreasing radius, or a bound of 0.5"
    )
    out = render_theory(found, "odd")
    assert re.search(r"\| usam constant rho=0.0 lr=2000.0 +\| diverged 2/2 ", out)
    assert len(list(theory_figures(found, "odd"))) == 1


def test_a_report_of_a_sweep_whose_radius_is_tuned(tmp_path: Path) -> None:
    from polysweep.analysis.report.html import write_report

    text = """
name: radii
metric: {name: suboptimality/relative, goal: minimize}
parameters: {task: {value: ridge}, model: {value: linear}, optimizer: {value: usam}, batch_size: {value: 100},
  scheduler: {value: polyak-deterministic}, rho: {values: [1.0, 5.0]}, epochs: {value: 20}}
tuned: [rho]
seeds: 2
"""
    trained(text, tmp_path / "store")
    pulled = pull("radii", store=Store(str(tmp_path / "store")), cache=tmp_path / "cache")
    write_report(select(pulled, epoch="last"), tmp_path / "r.html", None, {})
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "rho=1.0" in page and "rho=5.0" in page


def test_what_the_bounds_do_not_speak_of_is_refused(tmp_path: Path) -> None:
    from tests.support.made import by_lr

    made_sweep(tmp_path / "a", by_lr, name="digits-sweep")
    pulled = pull("digits-sweep", store=Store(str(tmp_path / "a")), cache=tmp_path / "cache")
    with pytest.raises(UserError, match=r"convex tasks with known constants \(ridge, logistic\), not for"):
        lines_of(select(pulled, epoch="last"))
    text = """
name: far
metric: {name: distance, goal: minimize}
parameters: {task: {value: ridge}, model: {value: linear}, optimizer: {value: usam}, batch_size: {value: 100},
  scheduler: {value: polyak-deterministic}, rho: {value: 12.0}, epochs: {value: 3}}
"""
    trained(text, tmp_path / "b")
    pulled = pull("far", store=Store(str(tmp_path / "b")), cache=tmp_path / "cache")
    with pytest.raises(
        UserError, match=r"rho = 12 of usam polyak-deterministic rho=12.0 is above 1/L = 10: no theorem"
    ):
        lines_of(select(pulled, epoch="last"))


def test_the_record_keeps_the_constants(small: Path) -> None:
    store = Store(str(small))
    spec = store.launched("theory-small")
    for trial in spec.trials:
        found = store.record(trial.trial_id)
        assert found is not None
        problem = problem_of(trial.config.task, trial.config.task_options)
        kept = found["constants"]
        assert kept == problem.constants() and len(kept["L_i"]) == problem.n
        assert (kept["L"], kept["mu"], kept["sigma2"]) == (problem.L, problem.mu, problem.f_star)


@pytest.mark.parametrize(
    "name", ["theory-deterministic", "theory-stochastic", "adaptive-deterministic", "adaptive-stochastic"]
)
def test_the_specs_plan_the_papers_grids(name: str) -> None:
    spec = SweepSpec.load(ROOT / "sweeps/specs" / f"{name}.yaml")
    assert spec.name == name and spec.seeds == [0, 1, 2, 3, 4]
    used = {trial.config.optimizer for trial in spec.trials}
    schedulers = {trial.config.scheduler for trial in spec.trials}
    if name.startswith("adaptive"):
        assert used == {"usam", "adasam", "lightsam-i", "lightsam-ii", "lightsam-iii", "sa-sam"}
        ours = [trial for trial in spec.trials if trial.config.optimizer == "usam"]
        problems = {trial.config.task_options["matrix"] for trial in ours}
        assert len({(t.config.rho, t.config.task_options["matrix"]) for t in ours}) * 5 == len(ours), "by radius alone"
        assert problems == ({"conditioned", "gaussian"} if name.endswith("stochastic") else {"conditioned"})
        settings = [trial.config.optimizer_options for trial in spec.trials if trial.config.optimizer_options]
        assert {one["eps"] for one in settings} == {1e-12} and {one.get("beta2", 0.999) for one in settings} == {0.999}
    else:
        assert {"andriushchenko2022", "oikonomou2025"} < schedulers
    stochastic = name.endswith("stochastic")
    paper = next(trial.config for trial in spec.trials if trial.config.task == "ridge")
    assert paper.batch_size == (10 if stochastic else 100)
    assert paper.task_options["lambda_r"] == (1e-3 if stochastic else 0.0)


@pytest.mark.long
def test_make_theory_makes_all_four_figures_and_tables(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    subprocess.run(["make", "theory"], cwd=project, check=True, capture_output=True, timeout=900)
    holding: set[tuple[str, str]] = set()
    for name in ("theory-deterministic", "theory-stochastic", "adaptive-deterministic", "adaptive-stochastic"):
        text = (project / "theory" / f"{name}.md").read_text(encoding="utf-8")
        assert "Theorem 3." in text and "**does not hold**" not in text and "violations of" not in text
        holding.update(re.findall(r"(Theorem|Corollary) (3\.\d).*\| holds ", text))
        assert len(list((project / "theory" / name).glob("suboptimality-*.png"))) >= 1
    race = (project / "theory" / "adaptive-deterministic.md").read_text(encoding="utf-8")
    assert "reaches 1e-10 after" in race and "behind" not in race
    assert {number for _, number in holding} == {"3.1", "3.2", "3.4", "3.5", "3.6", "3.7", "3.8"}, "none only vacuous"


def test_a_metric_that_the_task_has_not_is_refused_with_its_line() -> None:
    with pytest.raises(
        UserError, match=r"small.yaml:3: task 'ridge' does not log 'test/top1'; expected one of distance"
    ):
        SweepSpec.parse(
            SMALL.replace("suboptimality/relative, goal: minimize", "test/top1, goal: maximize"), "small.yaml"
        )


def test_the_python_of_the_theory_page_runs(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(small.parent)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "docs/theory.md", "exec"), {})
    assert "usam polyak-deterministic rho=2.5" in out.getvalue() and "Theorem 3.1" in out.getvalue()
