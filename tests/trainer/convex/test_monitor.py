"""What is measured of a convex task: first hits, averages, and every inequality of the lemmas."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from polysweep.trainer.convex import bounds
from polysweep.trainer.convex.problem import problem_of, ridge
from polysweep.trainer.tasks.loading import load_task
from tests.support import numpy_methods as loops
from tests.support.convex_trials import config, last, problem_options, run
from tests.support.violations import violations


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


def test_a_row_whose_distance_overflows_before_its_loss_has_diverged() -> None:
    row = run([config(scheduler="constant", rho=0.0, lr=2000.0, epochs=120)])[0][-1]
    assert row.outcome == "diverged" and row.history["distance"] is None


@pytest.mark.parametrize("every", [10, 2000, pytest.param(1, marks=pytest.mark.long)])
def test_first_hits_and_averages_are_those_of_the_iterates(every: int) -> None:
    """Found by step, whatever the distance of the records."""
    problem = problem_of("ridge", problem_options("ridge"))
    task = load_task(config(scheduler="khanh2024"))
    x = task.start(0).numpy()
    points = [x, *loops.usam(problem, x, [np.arange(100)] * 4000, 1 / (2 * problem.L), 2 / (9 * problem.L))]
    gaps = np.array([(y - problem.x_star) @ problem.hessian @ (y - problem.x_star) / 2 for y in points])
    first = [int(np.argmax(gaps <= level * gaps[0])) for level in (1e-6, 1e-10)]
    one = config(scheduler="khanh2024", epochs=4000 // every, task_options={"record_every": every})
    row = last(one)
    assert [row["iterations/1e-6"], row["iterations/1e-10"]] == first
    assert row["step"] == 4000 and row["suboptimality/relative"] == pytest.approx(gaps[4000] / gaps[0], rel=1e-6)
    mean = np.mean(points[:4000], axis=0)
    assert row["suboptimality/cesaro"] == pytest.approx(problem.value(mean), rel=1e-9)
    assert row["distance"] == pytest.approx(np.square(points[4000] - problem.x_star).sum(), rel=1e-6)
    assert "violations/gamma" in row and row["violations/gamma"] is None, "counted with check: true only"
