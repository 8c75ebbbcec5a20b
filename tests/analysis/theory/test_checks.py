"""`polysweep theory`: real launches of small sweeps, their tables and figures, from the Store and from W&B."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from polysweep import pull, select
from polysweep.analysis.theory.checks import checks, methods, pairs_of, verdicts
from polysweep.analysis.theory.curves import MethodCurve
from polysweep.analysis.theory.figures import theory_figures
from polysweep.analysis.theory.lines import lines_of
from polysweep.analysis.theory.text import render_theory
from polysweep.sweeps.job import Job
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.convex import bounds
from polysweep.trainer.convex.problem import problem_of
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, as_runs
from tests.support.made import sweep as made_sweep
from tests.support.project import ROOT, copy_of_the_project

SMALL = """
name: theory-small
metric: {name: suboptimality/relative, goal: minimize}
parameters:
  model: {value: linear}
  task_options.check: {value: true}
  task_options.record_every: {value: 5}
  epochs: {value: 60}
variants:
  - {task: {value: ridge}, optimizer: {value: usam}, batch_size: {value: 100}, scheduler: {value: polyak-deterministic}, rho: {values: [2.5, 7.5]}}
  - {task: {value: ridge}, optimizer: {value: usam}, batch_size: {value: 100}, scheduler: {values: [khanh2024, andriushchenko2022]}}
  - {task: {value: ridge}, optimizer: {value: usam}, batch_size: {value: 100}, scheduler: {value: polyak-deterministic}, rho: {value: 20}, rho_schedule: {value: inverse_sqrt}}
  - {task: {value: ridge}, optimizer: {value: lightsam-i}, batch_size: {value: 100}, scheduler: {value: constant}, lr: {values: [10.0, 1.0e+200]}, rho: {value: 0.1}}
  - {task: {value: ridge}, optimizer: {value: usam}, batch_size: {value: 10}, scheduler: {value: polyak-deterministic}, rho: {value: 0.1}}
  - {task: {value: ridge}, task_options.lambda_r: {value: 0.001}, task_options.consistent: {value: false}, optimizer: {value: usam}, batch_size: {value: 10}, scheduler: {value: polyak}, rho: {value: 0.1}, gamma_b: {value: 1.0}}
  - {task: {value: ridge}, task_options.lambda_r: {value: 0.001}, task_options.consistent: {value: false}, optimizer: {value: usam}, batch_size: {value: 10}, scheduler: {value: constant}, rho: {value: 0.1}, lr: {value: 0.05}}
  - {task: {value: ridge}, task_options.lambda_r: {value: 0.001}, task_options.consistent: {value: false}, optimizer: {value: usam}, batch_size: {value: 10}, scheduler: {value: andriushchenko2022}, scheduler_options.setting: {value: stochastic}}
  - {task: {value: logistic}, optimizer: {value: usam}, batch_size: {value: 200}, scheduler: {value: polyak-deterministic}, rho: {value: 1.0}}
  - {task: {value: logistic}, optimizer: {value: usam}, batch_size: {value: 20}, scheduler: {value: polyak}, rho: {value: 0.05}, gamma_b: {value: 1.0}}
tuned: [lr]
seeds: 5
"""  # noqa: E501


def trained(text: str, root: Path) -> str:
    """Run a spec's trials without Ray; returns the sweep's name."""
    store = Store(str(root))
    spec = SweepSpec.parse(text, "small.yaml")
    store.write_sweep(spec)
    groups: dict[str, list[Any]] = {}
    for trial in spec.trials:
        groups.setdefault(trial.config.signature, []).append(trial.config)
    for rows in groups.values():
        job = Job(str(root), tuple(one.canonical() for one in rows), width=len(rows), metric=spec.metric.name,
                  goal=spec.metric.goal, checkpoint_seconds=60)  # fmt: skip
        stack = StackRun(job)
        while stack.advance() is not None:
            pass
        stack.close()
    return spec.name


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Store of SMALL."""
    root = tmp_path_factory.mktemp("theory") / "polysweep-store"
    trained(SMALL, root)
    return root


@pytest.fixture(scope="module")
def lines(small: Path, tmp_path_factory: pytest.TempPathFactory) -> list[MethodCurve]:
    """Its lines."""
    pulled = pull("theory-small", store=Store(str(small)), cache=tmp_path_factory.mktemp("cache"))
    return lines_of(select(pulled, epoch="last"))


def test_every_statement_of_the_paper_is_checked_on_a_curve_that_it_speaks_of(lines: list[MethodCurve]) -> None:
    found = checks(lines)
    numbers = {re.match(r"\w+ (\d\.\d)", statement).group(1) for statement in found["statement"]}  # type: ignore[union-attr]
    assert numbers == {"3.1", "3.2", "3.4", "3.5", "3.6", "3.7", "3.8"}
    assert set(found["verdict"]) == {"holds", "vacuous"} and (found["n"] == 5).all()
    for which in ("gamma", "descent", "lemmas"):
        assert (found[f"violations {which}"] == 0).all()
    assert not any(line.statements for line in lines if not line.is_ours and "constant" not in line.label)


def test_factors_and_bounds_are_those_of_the_formulas(lines: list[MethodCurve]) -> None:
    """By hand from the histories and the constants of the paper's problem: L = 0.1, mu = 0.001."""
    line = next(one for one in lines if one.label == "usam polyak-deterministic rho=2.5")
    strongly, convex = line.statements
    assert strongly.bound == pytest.approx(1 - 0.001 * (1 - 0.25) ** 2 / 0.4, rel=1e-9)
    assert convex.bound == pytest.approx(0.2 / 0.75**2, rel=1e-9)
    one = line.history[line.history["step"] == 40]
    start = one["distance"] / one["distance/relative"]
    assert line.curve(strongly, np.array([40.0]))[0] == pytest.approx(strongly.bound**40 * start.mean())
    assert line.curve(convex, np.array([40.0]))[0] == pytest.approx(convex.bound / 40 * start.mean())
    left = line.history.groupby("step")["distance"].mean() / start.mean()
    end = left[left <= 2 * left.min()].index[0]
    assert line.measured(strongly) == pytest.approx(left[end] ** (1 / end))
    averaged = line.history.groupby("step")["suboptimality/cesaro"].mean()
    assert line.measured(convex) == pytest.approx((averaged * averaged.index).max() / start.mean())
    noisy = next(one for one in lines if one.label == "usam polyak rho=0.1" and one.problem.kind == "ridge")
    problem = problem_of("ridge", {"lambda_r": 0.001, "consistent": False})
    alpha = (1 - 0.1 * problem.L_max) ** 2 / (2 * problem.L_max)
    assert noisy.statements[0].bound == pytest.approx(1 - problem.mu * alpha / 2)
    assert noisy.statements[0].stays == pytest.approx(2 * (2 - alpha) / (problem.mu * alpha) * problem.f_star)
    assert noisy.statements[1].stays == pytest.approx((2 - alpha) / alpha * problem.f_star)
    constant = next(one for one in lines if "constant" in one.label and one.run["optimizer"] == "usam")
    share = (1 - 0.1 * problem.L_max) ** 2
    assert constant.statements[0].bound == pytest.approx(1 - problem.mu * share * 0.05 / 2)
    assert constant.statements[0].stays == pytest.approx(2 * (2 - share) / (problem.mu * share) * problem.f_star)


@pytest.mark.parametrize(
    ("formula", "other", "statement"),
    [
        ("rate", lambda *_: 0.5, "Theorem 3.1"),
        ("rate", lambda *_: 0.5, "Corollary 3.6"),
        ("neighbourhood", lambda *_: -1e6, "Theorem 3.5"),
        ("neighbourhood", lambda *_: -1e6, "Corollary 3.7"),
        ("cesaro", lambda *_: -1e6, "Theorem 3.8, convex"),
        ("cesaro", lambda *_: -1e6, "Theorem 3.8, interpolation"),
        ("cesaro", lambda *_: -1e6, "Theorem 3.8, constant step size"),
        ("alpha", lambda *given: 1e3 * given[-1], "Theorem 3.2"),
    ],
)
def test_a_statement_with_a_wrong_formula_does_not_hold(
    small: Path, tmp_path: Path, formula: str, other: Callable[..., float], statement: str
) -> None:
    pulled = pull("theory-small", store=Store(str(small)), cache=tmp_path)
    with mock.patch.object(bounds, formula, other):
        fresh = lines_of(select(pulled, epoch="last"))
        found = checks(fresh)
        wrong = found[found["statement"].str.startswith(statement)]
        told = verdicts(fresh)
    assert (wrong["verdict"] == "does not hold").all(), wrong
    assert any(f"{statement}" in text and "does not hold for" in text for text in told)


def test_a_limit_that_is_not_reached_and_violations_are_told(lines: list[MethodCurve]) -> None:
    line = next(one for one in lines if one.decreases)
    worse = line.history.assign(**{"suboptimality/relative": 0.5, "violations/descent": 2.0})
    broken = MethodCurve(line.label, line.title, line.problem, line.batch_size, line.cell, line.run, worse)
    told = verdicts([broken])
    assert any("10 violations of the descent bound" in text for text in told)
    assert [broken.verdict(statement) for statement in broken.statements] == ["not reached yet"], "it may yet come down"
    assert not any("Theorem 3.4" in text for text in told)


def test_the_winner_its_budget_and_whom_it_beats(lines: list[MethodCurve]) -> None:
    table = methods(lines)
    ridge = table[table["problem"] == "ridge consistent=True lambda_r=0.0, full batches"]
    assert ridge[ridge["best"]]["method"].tolist() == [ridge.sort_values("iterations 1e-10")["method"].iloc[0]]
    assert ridge[ridge["best"]]["method"].str.startswith("usam polyak-deterministic").all()
    tuned = ridge[ridge["method"] == "lightsam-i rho=0.1 lr=10.0"].iloc[0]
    assert (tuned["budget"], tuned["n"]) == (10, 5), "the other step size diverges, and counts as a run"
    assert "lr" in tuned["edge"]
    told = " ".join(verdicts(lines))
    assert re.search(
        r"rho=2.5 reaches 1e-10 after \d+ iterations \(n = 5\): "
        r"ahead of khanh2024 \(by at least \d+ \[\d+, \d+\], p [=<] \S+\)",
        told,
    )
    assert "corollary 3.7 permits at the radius of andriushchenko2022" in told
    assert re.search(r"ends at \S+ after 300 steps \(n = 5\): .*andriushchenko2022 \S+ \(by -?\d\S* \[", told)
    assert "lr = 10 is at the edge of its grid of 2 candidates" in told
    assert "usam polyak rho=0.1: the cap is active in 100.0% of the steps: this is the constant step size" in told


@pytest.mark.usefixtures("fresh_client")
def test_the_same_tables_come_from_wandb(
    small: Path, lines: list[MethodCurve], wandb_server: Wandb, tmp_path: Path
) -> None:
    store = Store(str(small))
    wandb_server.load("p", as_runs(store, "theory-small"))
    pulled = pull(f"{ADDRESS}/theory-small", store=store, cache=tmp_path)
    theirs = lines_of(select(pulled, epoch="last"))
    pd.testing.assert_frame_equal(methods(theirs), methods(lines), check_exact=True)
    pd.testing.assert_frame_equal(checks(theirs), checks(lines), check_exact=True)
    assert verdicts(theirs) == verdicts(lines)


def test_a_rival_is_told_apart_by_the_interval_of_the_difference_alone(lines: list[MethodCurve]) -> None:
    ours = next(one for one in lines if one.label == "usam polyak-deterministic rho=2.5")
    rival = next(one for one in lines if one.label == "khanh2024" and one.title == ours.title)
    ours = replace(ours, candidates={})
    mine = ours.iterations(1e-10)[0]

    def against(*counts: float) -> str:
        by_seed = dict(zip(rival.history["trial_id"].unique(), counts, strict=True))
        hits = {"iterations/1e-10": rival.history["trial_id"].map(by_seed)}
        other = replace(rival, label="a rival", history=rival.history.assign(**hits), candidates={})
        (text,) = [text for text in verdicts([ours, other]) if "reaches 1e-10" in text]
        return text.partition("(n = 5): ")[2]

    assert against(3, 4, 5, 6, 7).startswith("behind a rival (by -")
    assert against(*(count + 500 for count in mine)).startswith("ahead of a rival (by 500 [")
    assert against(*(count + 5 for count in mine)).startswith("not told from a rival (by 5 [-"), (
        "5 are within the noise"
    )


def test_an_undecided_method_stays_on_the_page(small: Path, tmp_path: Path) -> None:
    """A failed seed of one of two step sizes: it has a row and a sentence, and nothing of its problem is bold."""
    pulled = pull("theory-small", store=Store(str(small)), cache=tmp_path)
    at = pulled.runs.index[(pulled.runs["lr"] == 10.0) & (pulled.runs["seed"] == 0)]
    outcomes = pulled.runs["outcome"].mask(pulled.runs.index.isin(at), "failed")
    values = {name: pulled.runs[name].mask(pulled.runs.index.isin(at)) for name in pulled.runs if "st/" in name}
    fresh = lines_of(select(replace(pulled, runs=pulled.runs.assign(outcome=outcomes, **values)), epoch="last"))
    (row,) = methods(fresh)[methods(fresh)["method"] == "lightsam-i rho=0.1"].to_dict("records")
    assert row["n"] == 0 and row["undecided"].startswith("lr=10.0 ")
    assert not methods(fresh)[methods(fresh)["problem"] == row["problem"]]["marked"].any()
    page = render_theory(fresh, "small")
    assert (
        "lightsam-i rho=0.1: undecided, 1 run without a result could change the choice (1 failed, 5 diverged)" in page
    )
    assert "| undecided: lr=10.0 " in page


def test_bold_and_sentences_are_of_one_family(lines: list[MethodCurve]) -> None:
    table = methods(lines)
    best = table[table["best"]].set_index("problem")["method"]
    for race in pairs_of(lines):
        if race.line.label == best[race.line.title] and race.result == "ahead of":
            (row,) = table[(table["method"] == race.rival.label) & (table["problem"] == race.rival.title)].to_dict(
                "records"
            )
            assert not row["marked"], row


def test_a_bound_above_the_start_is_vacuous(lines: list[MethodCurve]) -> None:
    line = next(one for one in lines if one.label == "usam polyak rho=0.1" and one.problem.kind == "ridge")
    (rate, _) = line.statements
    assert rate.stays > line.start[1] and line.verdict(rate) == "vacuous"
    assert not line.is_vacuous(replace(rate, stays=0.0)) and line.verdict(replace(rate, stays=0.0)) != "vacuous"


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
    with pytest.raises(UserError, match=r"small.yaml:3: metric test/top1: ridge has no such; expected one of distance"):
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
