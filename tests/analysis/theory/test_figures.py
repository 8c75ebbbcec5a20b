"""The figures of `polysweep theory`, its page in the docs, and the specs of the paper's grids."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path

import pytest

from polysweep.analysis.theory.curves import MethodCurve
from polysweep.analysis.theory.figures import theory_figures
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.convex.problem import problem_of
from polysweep.trainer.errors import UserError
from tests.support.project import ROOT, copy_of_the_project
from tests.support.theory import SMALL


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
        UserError, match=r"small.yaml:3: metric.name: task 'ridge' does not log 'test/top1'; expected one of distance"
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
