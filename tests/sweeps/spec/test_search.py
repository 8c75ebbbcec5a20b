"""Where the points of a sweep come from: random draws and bayes. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from polysweep.sweeps.spec.search import Observation, distinct_draws, draw, propose
from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.specs import GOOD, parse

RANDOM = GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}", "{min: 0.05, max: 0.4}") + "run_cap: 30\n"
BAYES = RANDOM.replace("random", "bayes")


# Random.


def test_random_points_are_the_same_again_and_a_longer_sweep_begins_like_a_shorter_one() -> None:
    short, again = parse(RANDOM), parse(RANDOM)
    long = parse(RANDOM.replace("run_cap: 30", "run_cap: 60"))
    ids = [trial.trial_id for trial in short.trials]
    assert ids == [trial.trial_id for trial in again.trials] and len(set(ids)) == 30
    assert [trial.trial_id for trial in long.trials][:30] == ids
    assert {t.trial_id for t in parse(RANDOM + "search_seed: 1\n").trials}.isdisjoint(ids)
    assert [t.config.seed for t in short.trials[:3]] == [0, 1, 2] and len({t.point for t in short.trials}) == 10


def test_a_further_parameter_changes_no_other_ones_draws() -> None:
    more = RANDOM.replace("  epochs:", "  momentum: {min: 0.0, max: 0.9}\n  epochs:")
    rhos = [[trial.value("rho") for trial in parse(text).trials] for text in (RANDOM, more)]
    assert rhos[0] == rhos[1]


def test_variants_are_branches_with_parameters_of_their_own() -> None:
    configs = [trial.config for trial in parse(RANDOM).trials]
    assert {config.scheduler for config in configs} == {"constant", "polyak"}
    assert all((config.lr is not None) == (config.scheduler == "constant") for config in configs)


def test_a_point_that_is_drawn_again_is_the_same_trial_and_said_to_be() -> None:
    """60 draws of a space of six points. A longer sweep begins with the same trials."""
    spec = parse(GOOD.replace("grid", "random") + "run_cap: 180\n")
    assert len({t.trial_id for t in spec.trials}) == len(spec.trials) == 18, "each point with its three seeds, once"
    assert (spec.expansion.points, spec.expansion.different) == (60, 6)
    assert spec.repetition == "60 draws, 6 different points: a repeated one is the same trial and is run once"
    short = parse(GOOD.replace("grid", "random") + "run_cap: 9\n")
    assert [t.trial_id for t in spec.trials][: len(short.trials)] == [t.trial_id for t in short.trials]
    assert parse(RANDOM).repetition == ""


def test_values_are_drawn_as_often_as_their_probabilities_say() -> None:
    weighted = "{values: [0.1, 0.2], probabilities: [0.9, 0.1]}"
    space = parse(GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}", weighted) + "run_cap: 3\n").space
    drawn = [draw(space, 0, index).values["rho"] for index in range(1000)]
    assert 880 < drawn.count(0.1) < 920


def test_a_sweep_of_an_earlier_version_continues_to_draw_no_point_twice() -> None:
    spec = parse(GOOD.replace("grid", "random") + "run_cap: 18\n")
    old = spec.with_distinct_draws()
    assert len(old.trials) == 18 and len(spec.trials) < 18
    assert len(list(distinct_draws(spec.space, 0))) == 6
    assert "replacement" in spec.settings.space and "replacement" not in old.settings.space
    with pytest.raises(SpecError, match=r"file.yaml:15: run_cap: 300 trials .* only 6 different ones can be drawn"):
        _ = parse(GOOD.replace("grid", "random") + "run_cap: 300\n").with_distinct_draws().trials


# Bayes.


def next_point(*arguments: Any) -> Any:
    return next(propose(*arguments), None)


def observed(suggestion: object, value: float) -> Observation:
    return Observation(suggestion, "complete", value)  # type: ignore[arg-type]


def test_bayes_goes_on_from_what_is_known_and_nothing_else() -> None:
    """The same after a restart, for the value of a point; another value may lead elsewhere."""
    spec = parse(BAYES)

    def search(count: int, start: list[Observation]) -> list[Observation]:
        known = list(start)
        while len(known) < count:
            made = next_point(spec.space, 0, "maximize", known)
            assert made is not None
            known.append(observed(made, -abs(made.point.values["rho"] - 0.2)))
        return known

    whole = search(16, [])
    assert search(16, whole[:7]) == whole
    assert len({repr(o.suggestion.point) for o in whole}) == 16
    first, later = whole[:8], whole[12:]
    assert max(o.value or 0 for o in later) > min(o.value or 0 for o in first)
    assert {o.suggestion.point.variant for o in whole} == {0, 1}
    for o in whole:
        assert ("lr" in o.suggestion.point.values) == (o.suggestion.point.variant == 0)


def test_bayes_keeps_away_from_where_points_diverged_or_were_stopped() -> None:
    """All points beyond rho = 0.2 are bad: most later proposals stay below it."""
    spec = parse(BAYES)
    known: list[Observation] = []
    for _ in range(40):
        made = next_point(spec.space, 3, "minimize", known)
        assert made is not None
        rho = made.point.values["rho"]
        known.append(observed(made, 1.0 + rho) if rho < 0.2 else Observation(made, "bad"))
    assert sum(o.state == "bad" for o in known[20:]) < sum(o.state == "bad" for o in known[:20])
    stopped = Observation(known[0].suggestion, "stopped", 0.5, epoch=3)
    running = Observation(known[1].suggestion, "running")
    assert next_point(spec.space, 3, "minimize", [stopped, running]) is not None


def test_an_exhausted_space_is_the_end_of_bayes() -> None:
    spec = parse(GOOD.replace("grid", "bayes") + "run_cap: 30\n")
    known: list[Observation] = []
    while (made := next_point(spec.space, 0, "maximize", known)) is not None:
        known.append(observed(made, 0.5))
    assert len(known) == 6


def test_proposals_become_trials() -> None:
    spec = parse(BAYES)
    assert spec.trials == []
    made = next_point(spec.space, 0, "maximize", [])
    assert made is not None
    grown = spec.with_suggestions([made])
    assert [t.config.seed for t in grown.trials] == [0, 1, 2] and spec.trials == []
    assert grown.trials[0].config.rho == made.point.values["rho"]
