"""The paper's inequalities over random convex problems."""

from __future__ import annotations

import itertools
import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.convex import bounds
from polysweep.trainer.convex.problem import Problem, ridge
from polysweep.trainer.convex.task import Convex
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.stack.stack import Stack


def _matrix(rng: np.random.Generator, n: int, d: int, spectrum: list[float]) -> Any:
    """Random singular vectors, and these singular values; with fewer than d of them A is singular."""
    k = min(n, d, len(spectrum))
    u, v = (np.linalg.qr(rng.standard_normal((size, size)))[0][:, :k] for size in (n, d))
    return (u * spectrum[:k]) @ v.T


@st.composite
def problems(draw: Any) -> Problem:
    """Ridge and logistic problems of many sizes and spectra, singular ones among them."""
    d, n = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spectrum = [10.0 ** draw(st.floats(-2, 1)) for _ in range(draw(st.integers(1, d)))]
    a = _matrix(rng, n, d, spectrum)
    if draw(st.booleans()):
        # Every row with both labels: no hyperplane separates them, so that there is a minimiser.
        a = np.concatenate([a, a, a[: n // 2]])
        return _with_minimiser(Problem("logistic", a, np.concatenate([np.ones(n), -np.ones(n), np.ones(n // 2)])))
    lambda_r = draw(st.sampled_from([0.0, 1e-3, 0.3]))
    x = rng.standard_normal(d)
    if draw(st.booleans()):
        return Problem("ridge", a, a @ x, lambda_r, known=None if lambda_r else x)
    return Problem("ridge", a, rng.standard_normal(n), lambda_r)


def _with_minimiser(problem: Problem) -> Problem:
    """A singular A has no unique minimiser, and Newton's step needs one: without the directions that A does not see."""
    u, s, _ = np.linalg.svd(problem.a, full_matrices=False)
    keep = s > 1e-9 * s[0]
    return Problem("logistic", u[:, keep] * s[keep], problem.b)


def violations(problem: Problem, share: float, cap: float, batch: int, seed: int, steps: int = 40) -> dict[str, Any]:
    """By inequality how often a stack of every covered method breaks it, radius `share` of the largest.

    Step sizes and descents at every step; after the last one theorems 3.1 and 3.2, which hold for every single run.
    """
    full = batch == problem.n
    smooth = problem.L if full else problem.L_max
    rho = min(share / smooth, 1 / smooth)
    rules: list[dict[str, Any]] = [{"scheduler": "polyak", "gamma_b": cap}]
    if full or problem.is_interpolated:
        rules.append({"scheduler": "polyak-deterministic"})
        rules.append({"scheduler": "polyak-deterministic", "rho_schedule": "inverse_sqrt", "rho": 3 * rho})
    if rho * smooth < 0.999:
        rules.append({"scheduler": "constant", "lr": min(cap, bounds.least_step(smooth, rho))})
    options = {"record_every": steps, "check": True}
    with mock.patch.multiple("polysweep.trainer.convex.coverage", problem_of=lambda *_: problem), \
         mock.patch.multiple("polysweep.trainer.convex.task", problem_of=lambda *_: problem):  # fmt: skip
        base = {"task": "ridge", "model": "linear", "optimizer": "usam", "rho": rho, "batch_size": batch, "epochs": 1}
        configs = [TrialConfig.parse({**base, "seed": seed, "task_options": options, **rule}) for rule in rules]
        task = Convex("ridge", configs[0].task_options)
        stack = Stack(configs, task)
        start = (stack.theta - task.x_star).square().sum(1).tolist()
        result = EpochRunner(stack).run(1, 0, lambda: False)
        assert result is not None
        found = stack.measure(steps)
    broken = {
        "gamma": found["violations/gamma"].tolist(),
        "cap": [float(result.sums.gamma_max[0] > cap)],
        "descent": found["violations/descent"].tolist(),
        "lemmas": found["violations/lemmas"].tolist(),
        "rate": [],
        "cesaro": [],
    }
    if full and rho * smooth < 0.999:
        alpha = bounds.alpha(smooth, rho, bounds.ceiling(smooth, math.inf))
        grain = 1e-12 + (100 * problem.grain) ** 2
        left, averaged = found["distance"][1].item(), found["suboptimality/cesaro"][1].item()
        broken["rate"] = [float(left > bounds.rate(problem.mu, alpha) ** steps * start[1] * (1 + 1e-9) + grain)]
        broken["cesaro"] = [float(averaged > bounds.cesaro(alpha, math.inf, 0.0, start[1], steps) * (1 + 1e-9) + grain)]
    return broken


@pytest.mark.parametrize("examples", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_no_inequality_of_the_paper_is_violated(examples: int) -> None:
    """Over 1,000 random problems (60 in `make test`): sizes, spectra, radii up to 1/L, caps, full and mini-batches."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        problem=problems(),
        share=st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)),
        cap=st.floats(-3, 3).map(lambda power: 10.0**power),
        is_full=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def holds(problem: Problem, share: float, cap: float, is_full: bool, seed: int) -> None:
        batch = problem.n if is_full else 1 + seed % problem.n
        broken = violations(problem, share, cap, batch, seed)
        assert not any(itertools.chain(*broken.values())), broken

    holds()


@pytest.mark.parametrize(
    ("formula", "other", "which"),
    [
        ("least_step", lambda smooth, rho: 4 / (2 * smooth) + 0 * rho, "gamma"),
        ("alpha", lambda smooth, rho, ceiling: 8 * ceiling + 0 * smooth * rho, "descent"),
        ("growth", lambda alpha, excess, cap, noise: -8 * alpha * excess + 2 * cap * noise, "descent"),
        ("growth", lambda alpha, excess, cap, noise: -alpha * excess - 2 * cap * noise - 0.5 * excess, "descent"),
        ("rate", lambda *_: 0.05, "rate"),
        ("cesaro", lambda *given: given[3] / (200 * given[0] * given[4]), "cesaro"),
    ],
)
@pytest.mark.parametrize("batch", [40, 5])
def test_a_check_with_a_wrong_formula_fails(formula: str, other: Any, which: str, batch: int) -> None:
    problem = ridge(40, 10, 3.0, 1e-3, consistent=False, problem_seed=0)
    if which in ("rate", "cesaro"):
        batch = 40  # with mini-batches they hold in expectation only
    assert not any(itertools.chain(*violations(problem, 0.3, 5.0, batch, 0).values()))
    with mock.patch.object(bounds, formula, other):
        found = violations(problem, 0.3, 5.0, batch, 0)
    assert any(found[which]), f"{formula} could be anything"


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("batch", [40, 5])
def test_each_inequality_of_the_lemmas_is_looked_at(at: int, batch: int) -> None:
    """With its larger side made ten times smaller each of them fails."""
    whole = bounds.lemmas

    def shrunk(*given: Any) -> Any:
        found = [*whole(*given)]
        less, more = found[at]
        found[at] = (less, more - 0.9 * more.abs())
        return tuple(found)

    problem = ridge(40, 10, 3.0, 1e-3, consistent=False, problem_seed=0)
    with mock.patch.object(bounds, "lemmas", shrunk):
        assert any(violations(problem, 0.3, 5.0, batch, 0)["lemmas"])


@pytest.mark.parametrize("at", range(6))
def test_each_property_of_smoothness_and_convexity_is_looked_at(at: int) -> None:
    whole = bounds.properties

    def shrunk(*given: Any) -> Any:
        found = [*whole(*given)]
        less, more = found[at]
        found[at] = (less, more / 500)
        return tuple(found)

    problem = ridge(40, 10, 3.0, 1e-3, consistent=False, problem_seed=0)
    with mock.patch.object(bounds, "properties", shrunk):
        assert any(violations(problem, 0.3, 5.0, 40, 0)["lemmas"])
