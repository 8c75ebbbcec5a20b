"""What differs between a spec and the sweep that was launched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.planning.spec_changes import as_launched, compare
from polysweep.sweeps.spec.decisions import Choice, by_key
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from tests.support.replicated_worlds import world_spec

SpecFile = Callable[..., Path]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": {"name": "test/loss", "goal": "minimize"}}, ("metric.name: test/top1 -> test/loss", "metric.goal")),
        ({"method": "random", "run_cap": 2}, ("method: grid -> random",)),
        (
            {
                "early_terminate": {"type": "hyperband", "min_iter": 1},
                "metric": {"name": "test/top1", "goal": "maximize"},
            },
            ("early_terminate: none -> type=hyperband",),
        ),
    ],
)
def test_what_decides_otherwise_is_a_change(
    spec_file: SpecFile, tmp_path: Path, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    store = Store(str(tmp_path / "store"))
    store.write_sweep(SweepSpec.load(spec_file()))
    changed = compare(SweepSpec.load(spec_file(**change)), store).changed
    for word in words:
        assert any(word in line for line in changed), changed
    assert compare(SweepSpec.load(spec_file(tuned=[])), store).changed == ()


def test_a_random_sweep_of_an_earlier_version_continues_with_the_points_that_it_was_launched_with(
    spec_file: SpecFile, tmp_path: Path
) -> None:
    """Six points of two seeds: earlier versions drew all of them, once each."""
    store = Store(str(tmp_path / "store"))
    spec = SweepSpec.load(spec_file(method="random", run_cap=12))
    assert as_launched(spec, store) is spec and len(spec.trials) < 12, "not launched yet: draws may repeat a point"
    store.write_sweep(spec.with_distinct_draws())
    continued = as_launched(spec, store)
    assert [t.trial_id for t in continued.trials] == [t.trial_id for t in store.launched("small").trials]
    assert len(continued.trials) == 12 and continued.repetition == ""
    before = compare(continued, store)
    assert (before.new, before.gone, before.changed) == (0, 0, ())
    store.write_sweep(continued)
    assert as_launched(spec, store).trials == continued.trials, "launching it again does not change how it draws"


def test_a_random_sweep_of_an_earlier_version_has_its_decisions(tmp_path: Path) -> None:
    store, spec = Store(str(tmp_path / "store")), world_spec(method="random", run_cap=36)
    old = spec.with_distinct_draws()
    store.write_sweep(old)
    cell, members = next(iter(by_key(old.tuning_trials).items()))
    store.search.keep_decision("world", Choice(cell, members[0].trial_id))
    continued = as_launched(spec, store)
    assert continued.decisions.choices.keys() == {cell} and continued.tuning_trials == old.tuning_trials


def test_a_random_sweep_of_this_version_continues_to_draw_with_replacement(spec_file: SpecFile, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    spec = SweepSpec.load(spec_file(method="random", run_cap=12))
    store.write_sweep(spec)
    longer = as_launched(SweepSpec.load(spec_file(method="random", run_cap=120)), store)
    assert longer.repetition.startswith("60 draws, 6 different points")
    extension = compare(longer, store)
    assert (extension.gone, extension.new, extension.changed) == (0, 12 - len(spec.trials), ())
