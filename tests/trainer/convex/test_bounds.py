"""The paper's inequalities over random convex problems."""

from __future__ import annotations

import itertools
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polysweep.trainer.convex import bounds
from polysweep.trainer.convex.problem import Problem, ridge
from tests.support.violations import violations


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
