"""Points and decisions of a search, as a launch makes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from polysweep.sweeps.scheduling import job_queue as decisions
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store

SpecFile = Callable[..., Path]


def test_decisions_about_points_are_kept_before_they_are_acted_on(tmp_path: Path, spec_file: SpecFile) -> None:
    """Of two launches of one bayes sweep each makes proposals of its own, and a decision at a rung is made once."""
    spec = SweepSpec.load(
        spec_file(method="bayes", metric={"name": "test/top1", "goal": "maximize"}, run_cap=8,
                  early_terminate={"type": "hyperband", "min_iter": 1})
    )  # fmt: skip
    supplies = []
    for _ in range(2):
        supply = decisions.JobQueue(spec, Store(str(tmp_path / "store")), "")
        supply.begin(supply.states())
        supplies.append(supply)
    handed = [supply.next() for supply in (*supplies, *supplies)]
    ids = [{t.trial_id for stack in found[0] for t in stack.trials} for found in handed if found]
    assert len(ids) == 4 and len(set.union(*ids)) == 8
    assert len(Store(str(tmp_path / "store")).search.suggestions("small")) == 4
    assert supplies[0].next() is None, "four points of two seeds are all that run_cap allows"
