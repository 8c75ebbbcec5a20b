"""What a search has decided is kept once: proposals, early ends, and that nothing is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.spec.search import Point, Suggestion
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.store import Store
from tests.support.specs import GOOD, parse

BAYES = GOOD.replace("grid", "bayes").replace("{values: [0.1, 0.2]}", "{min: 0.05, max: 0.4}") + "run_cap: 6\n"
FIRST = Suggestion(Point(0, {"rho": 0.25, "lr": 0.1}), {"rho": 0.25, "lr": 1})
SECOND = Suggestion(Point(1, {"rho": 0.125}), {"rho": 0.125})


def test_a_proposal_is_kept_as_it_is_unless_another_launch_was_faster(tmp_path: Path) -> None:
    search = Store(str(tmp_path)).search
    assert search.add_suggestion("file", FIRST, 0)
    assert not Store(str(tmp_path)).search.add_suggestion("file", SECOND, 0), "made without knowing the first"
    assert search.add_suggestion("file", SECOND, 1)
    assert Store(str(tmp_path)).search.suggestions("file") == [FIRST, SECOND] and search.proposals("file") == 2


def test_proposals_of_variants_that_the_spec_does_not_have_are_damage(tmp_path: Path) -> None:
    search = Store(str(tmp_path)).search
    assert search.as_decided(parse(GOOD)).suggestions == (), "a grid has none"
    search.add_suggestion("file", Suggestion(Point(2, {"rho": 0.25}), {"rho": 0.25}), 0)
    with pytest.raises(StoreError) as caught:
        search.as_decided(parse(BAYES))
    assert (
        str(caught.value) == f"{tmp_path}/sweeps/file/points: damaged: a point of a variant that the spec does not have"
    )


@pytest.mark.parametrize("survives", [True, False])
def test_the_first_decision_at_a_rung_holds_for_all_seeds_of_the_point(tmp_path: Path, survives: bool) -> None:
    search = Store(str(tmp_path)).search
    assert search.decide("file", ["a", "b"], 3, survives, {"epoch": 3}) is survives
    assert Store(str(tmp_path)).search.decide("file", ["a", "b"], 3, not survives, {"epoch": 3}) is survives
    assert search.all_ended_early("file") == (set() if survives else {"a", "b"})
    assert search.ended_early("file", "b") is not survives and not search.ended_early("other", "b")
    assert not search.is_exhausted("file")
    search.mark_exhausted("file")
    assert search.is_exhausted("file") and not search.is_exhausted("other")
