"""Time and cost of what is left, from what has been trained."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.planning.estimate import Estimate, estimate
from polysweep.sweeps.planning.plan import Plan, plan
from polysweep.sweeps.spec.search import Observation, Suggestion, propose
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from tests.support.made_trials import fake

Run = Callable[..., subprocess.CompletedProcess[str]]
SpecFile = Callable[..., Path]


def test_time_and_cost_come_from_finished_trials_of_the_same_signature_on_the_same_device(
    run_here: Run, spec_file: SpecFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polysweep.trainer.device import device_model

    def estimated(made: Plan) -> Estimate:
        return estimate(made.stacks, made.states, made.spec.settings.launch, store)

    store = Store(str(tmp_path / "store"))
    spec = SweepSpec.load(spec_file(launch={"stack": 2, "concurrency": 2}))
    made = plan(spec, store.states(spec))
    assert "no estimate: no finished trial" in str(estimated(made))
    assert "no estimate" in run_here("plan", tmp_path / "small.yaml", "--store", "store").stdout
    first = SweepSpec.load(spec_file(seeds=1, launch={"stack": 2}))
    told = {"signature": first.trials[0].signature}
    fake(store, first, provenance={"device_model": "another processor"}, **told)
    made = plan(spec, store.states(spec))
    assert estimated(made).wall_hours is None, "another device says nothing"
    fake(store, first, provenance={"device_model": device_model("cpu")}, **told)
    made = plan(spec, store.states(spec))
    found = estimated(made)
    # Six trials are left, in three stacks of 3 epochs of 2 s, two at once; six have taken 6 s each in stacks of two.
    assert (found.stacks, found.known, found.trials) == (3, 3, 6)
    assert found.device_hours == pytest.approx(18 / 3600) and found.wall_hours == pytest.approx(9 / 3600)
    assert found.spent_hours == pytest.approx(18 / 3600)


def test_points_that_bayes_has_still_to_propose_are_estimated_like_the_trials_that_there_are(
    run_here: Run, spec_file: SpecFile, tmp_path: Path
) -> None:
    """Two of five points are known and trained, with an epoch of a stack of two seeds in 2 s."""
    from polysweep.trainer.device import device_model

    store = Store(str(tmp_path / "store"))
    path = spec_file(
        method="bayes", metric={"name": "test/top1", "goal": "maximize"}, run_cap=10, launch={"concurrency": 1}
    )
    spec = SweepSpec.load(path)
    store.write_sweep(spec)
    suggestions: list[Suggestion] = []
    for number in range(2):
        suggestions.append(next(propose(spec.space, 0, "maximize", [Observation(s, "running") for s in suggestions])))
        store.search.add_suggestion("small", suggestions[-1], number)
    spec = spec.with_suggestions(suggestions)
    store.write_sweep(spec)
    fake(store, spec, provenance={"device_model": device_model("cpu")}, signature=spec.trials[0].signature)
    for command in (("plan", path), ("status", "small")):
        answer = json.loads(run_here(*command, "--store", store.root, "--json").stdout)["estimate"]
        assert (answer["stacks"], answer["known"], answer["proposals"]) == (3, 3, 3)
        assert answer["device_hours"] == pytest.approx(3 * 3 * 2 / 3600)
        text = run_here(*command, "--store", store.root).stdout
        assert "time and cost: about 0:00:18 with 1 stacks at once" in text
        assert "3 points are still to be proposed and counted as average ones" in text


def test_an_estimate_beyond_any_calendar_is_in_years() -> None:
    base = {"device": "a CPU", "unit": "core", "stacks": 1, "known": 1, "trials": 1, "slots": 1, "spent_hours": 0.0}
    for hours, text in (
        (1.5, "about 1:30:00 with"),
        (30.0, "about 1 day, 6:00:00 with"),
        (1e300, "about 1.14e+296 years"),
    ):
        assert text in str(Estimate(**base, wall_hours=hours, device_hours=hours))  # type: ignore[arg-type]
