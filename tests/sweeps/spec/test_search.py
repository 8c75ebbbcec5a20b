"""Where the points of a sweep come from: entries, random draws, bayes, early termination, fast expansion. Pure."""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from polysweep.sweeps.spec.hyperband import Hyperband, mean_curve, survives
from polysweep.sweeps.spec.parameter import Parameter
from polysweep.sweeps.spec.search import Observation, distinct_draws, draw, propose
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import by_cell, by_point
from polysweep.trainer.config import TrialConfig
from tests.support.project import ROOT
from tests.support.specs import GOOD, parse

RANDOM = GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}", "{min: 0.05, max: 0.4}") + "run_cap: 30\n"
BAYES = RANDOM.replace("random", "bayes")


# Entries.


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"value": 3}, "constant"), ({"values": [1, 2]}, "categorical"), ({"min": 1, "max": 5}, "int_uniform"),
        ({"min": 1.0, "max": 5}, "uniform"), ({"mu": 0, "sigma": 2}, "normal"),
    ],
)  # fmt: skip
def test_an_entry_without_a_distribution_has_the_one_that_wandb_would_take(entry: dict, kind: str) -> None:
    assert Parameter.model_validate(entry).kind == kind


CONTINUOUS = {
    "uniform": ({"min": 0.1, "max": 0.4}, stats.uniform(0.1, 0.3)),
    "log_uniform": ({"min": -3.0, "max": -1.0}, stats.loguniform(math.exp(-3), math.exp(-1))),
    "log_uniform_values": ({"min": 0.001, "max": 1.0}, stats.loguniform(0.001, 1.0)),
    "normal": ({"mu": 2.0, "sigma": 3.0}, stats.norm(2, 3)),
    "log_normal": ({"mu": -1.0, "sigma": 0.5}, stats.lognorm(0.5, scale=math.exp(-1))),
}


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_draws_follow_the_distribution(kind: str) -> None:
    """The value at u is scipy's inverse cumulative distribution there, and seeded draws pass Kolmogorov and Smirnov."""
    entry, expected = CONTINUOUS[kind]
    parameter = Parameter.model_validate({"distribution": kind, **entry})
    for u in (0.01, 0.3, 0.5, 0.99):
        assert parameter.at(u) == pytest.approx(expected.ppf(u), rel=1e-9)
    drawn = [draw([{"lr": parameter}], 7, index).values["lr"] for index in range(500)]
    assert stats.kstest(drawn, expected.cdf).pvalue > 0.01


QUANTIZED = {
    "q_uniform": ({"min": 0.1, "max": 0.9, "q": 0.25}, [0.25, 0.5, 0.75]),
    "q_log_uniform_values": ({"min": 1, "max": 7, "q": 2}, [2, 4, 6]),
    "q_normal": ({"mu": 0.0, "sigma": 0.001, "q": 0.5}, [0.0]),
}


@pytest.mark.parametrize("kind", QUANTIZED)
def test_quantized_draws_are_the_multiples_inside_the_range(kind: str) -> None:
    entry, values = QUANTIZED[kind]
    parameter = Parameter.model_validate({"distribution": kind, **entry})
    assert sorted({parameter.at(u / 1000) for u in range(1, 1000)}) == values


def test_whole_numbers_and_weighted_values_are_drawn_as_often_as_said() -> None:
    dice = Parameter.model_validate({"min": 1, "max": 6})
    assert [dice.at((k + 0.5) / 6) for k in range(6)] == [1, 2, 3, 4, 5, 6] == dice.grid
    coin = Parameter.model_validate({"values": ["a", "b", "c"], "probabilities": [0.5, 0, 0.5]})
    assert [coin.at(u) for u in (0.1, 0.49, 0.51, 0.99)] == ["a", "a", "c", "c"]


@given(u=st.floats(1e-6, 1 - 1e-6))
@settings(max_examples=50)
def test_a_value_of_optunas_space_is_one_that_could_be_drawn(u: float) -> None:
    for kind, (entry, _) in {**CONTINUOUS, **QUANTIZED}.items():
        parameter = Parameter.model_validate({"distribution": kind, **entry})
        space = parameter.optuna()
        if kind.endswith("normal"):
            raw: object = u
        elif isinstance(space.low, int):  # type: ignore[attr-defined]
            raw = space.low  # type: ignore[attr-defined]
        else:
            raw = parameter.at(u)
        value = parameter.from_optuna(raw)
        if parameter.min is not None and parameter.max is not None and kind != "log_uniform":
            assert parameter.min <= value <= parameter.max
        if kind == "normal":
            assert value == NormalDist(2, 3).inv_cdf(u)


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


def test_a_point_is_not_drawn_twice() -> None:
    space = parse(GOOD.replace("grid", "random") + "run_cap: 18\n")
    assert len({t.trial_id for t in space.trials}) == 18, "all six points of a space of six"
    assert len(list(distinct_draws(space.space, 0))) == 6


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


# Early termination.


def test_rungs_are_where_wandb_has_them() -> None:
    def rungs(epochs: int, **given: int) -> list[int]:
        return Hyperband.model_validate({"type": "hyperband", **given}).rungs(epochs)

    assert rungs(100, min_iter=3) == [3, 9, 27, 81]
    assert rungs(100, min_iter=3, eta=2) == [3, 6, 12, 24, 48, 96]
    assert rungs(81, min_iter=3) == [3, 9, 27]
    assert rungs(2, min_iter=3) == []
    assert rungs(100, max_iter=27, s=2) == [3, 9]
    assert rungs(100, max_iter=100, s=2, eta=3) == [11, 33]


def test_one_of_eta_goes_on_by_the_best_value_so_far() -> None:
    curves = [[0.1, 0.2], [0.5, 0.3], [0.2, 0.4], [0.1, 0.1], [0.9]]
    going = [survives(own, [c for c in curves if c is not own], 2, 2, "maximize") for own in curves if len(own) >= 2]
    assert going == [False, True, True, False], "0.9 has not come as far; the best of 0.5 and 0.3 counts"
    assert survives([3.0, 1.0], [[2.0, 2.0], [1.0, 5.0]], 2, 3, "minimize"), "ties go on"
    assert survives([0.1, 0.1], [], 2, 3, "maximize"), "the first one has nobody to be compared with"


def test_a_point_is_as_far_as_its_slowest_seed_and_ends_where_one_diverges() -> None:
    assert mean_curve([[0.1, 0.2, 0.3], [0.3, 0.4]]) == pytest.approx([0.2, 0.3])
    assert mean_curve([[0.1, None], [0.3, 0.4]]) == pytest.approx([0.2])
    assert mean_curve([[0.1, math.inf], [0.3, 0.4]]) == pytest.approx([0.2])
    assert mean_curve([[], [0.3]]) == []


# Expansion.


@given(
    rho=st.lists(st.floats(0, 10), min_size=1, max_size=3, unique=True),
    lr=st.lists(st.sampled_from([1, 0.1, 1e-5, "0.25"]), min_size=1, max_size=3, unique=True),
    decay=st.sampled_from([0, 0.0, 5e-4, "1e-4"]),
    seeds=st.lists(st.integers(0, 2**40), min_size=1, max_size=3, unique=True),
    hidden=st.lists(st.integers(1, 99), min_size=1, max_size=2, unique=True),
)
@settings(max_examples=40)
def test_the_fast_expansion_has_the_ids_and_configs_of_the_plain_one(
    rho: list, lr: list, decay: object, seeds: list, hidden: list
) -> None:
    fixed = {"task": "digits", "model": "mlp", "optimizer": "sam", "weight_decay": decay}
    spec = parse(
        json.dumps(
            {
                "parameters": {
                    **{k: {"value": v} for k, v in fixed.items()},
                    "model_options": {"parameters": {"hidden": {"values": hidden}}},
                    "rho": {"values": rho},
                },
                "variants": [{"scheduler": {"value": "constant"}, "lr": {"values": lr}},
                             {"scheduler": {"value": "polyak"}}],
                "seeds": seeds,
            }
        )
    )  # fmt: skip
    plain = [
        TrialConfig.parse({**fixed, "model_options": {"hidden": h}, "rho": r, **variant, "seed": seed})
        for variants in ([{"scheduler": "constant", "lr": value} for value in lr], [{"scheduler": "polyak"}])
        for h in hidden for r in rho for variant in variants for seed in seeds
    ]  # fmt: skip
    assert [trial.trial_id for trial in spec.trials] == [config.trial_id for config in plain]
    assert [trial.config for trial in spec.trials] == plain
    points = (len(lr) + 1) * len(hidden) * len(rho)
    assert len(by_point(spec.trials)) == points
    assert len(by_cell(spec.trials)) == points, "lr is not tuned"


def test_options_can_be_swept_one_by_one_and_tuned() -> None:
    text = GOOD.replace("{value: mlp}", "{value: mlp}\n  model_options: {parameters: {hidden: {values: [8, 9]}}}")
    spec = parse(text.replace("[lr]", "[lr, model_options.hidden]"))
    assert {t.config.model_options["hidden"] for t in spec.trials} == {8, 9}
    assert set(spec.trials[0].cell) == {"rho", "scheduler"}
    assert set(parse(text).trials[0].cell) == {"model_options.hidden", "rho", "scheduler"}


def test_foreign_names_are_renamed_and_what_has_no_sense_is_said() -> None:
    text = GOOD.replace("lr:", "learning_rate:").replace("[lr]", "[learning_rate]")
    text += "rename: {learning_rate: lr}\nprogram: train.py\ncommand: [python]\nproject: mine\ndescription: a test\n"
    spec = parse(text)
    assert [t.trial_id for t in spec.trials] == [t.trial_id for t in parse(GOOD).trials]
    assert (spec.ignored, spec.project, spec.description) == (["program", "command"], "mine", "a test")


def test_a_cap_takes_the_first_trials_of_a_grid() -> None:
    capped = parse(GOOD + "run_cap: 6\n")
    assert [t.trial_id for t in capped.trials] == [t.trial_id for t in parse(GOOD).trials[:6]]


def test_the_schema_for_editors_is_that_of_the_model() -> None:
    kept = json.loads(Path(ROOT / "sweeps/spec.schema.json").read_text())
    assert kept == SweepSpec.json_schema(), "run `make schema`"
    assert set(kept["properties"]) == set(SweepSpec.model_fields)
    assert kept["$defs"]["Parameter"]["additionalProperties"] is False
