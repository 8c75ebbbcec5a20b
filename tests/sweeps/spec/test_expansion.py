"""From choices of parameters to trials: in the file's order, and with the ids of plain configs."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from polysweep.sweeps.spec.sweep import by_cell, by_point
from polysweep.trainer.config import TrialConfig
from tests.support.specs import GOOD, parse


def test_a_spec_expands_in_the_order_in_which_it_is_written() -> None:
    spec = parse(GOOD)
    assert spec.name == "file"
    trials = spec.trials
    assert len(trials) == len({t.trial_id for t in trials}) == 2 * 2 * 3 + 2 * 3
    assert [t.config.seed for t in trials[:3]] == [0, 1, 2]
    assert [(t.config.rho, t.config.lr) for t in trials[:12:3]] == [
        (0.1, 0.01),
        (0.1, 0.1),
        (0.2, 0.01),
        (0.2, 0.1),
    ]
    assert [dict(t.cell) for t in trials[::6]] == [
        {"rho": 0.1, "scheduler": "constant"},
        {"rho": 0.2, "scheduler": "constant"},
        {"rho": 0.1, "scheduler": "polyak"},
    ]
    assert trials[0].config.weight_decay == 1e-4


def test_the_same_trial_in_another_sweep_has_the_same_id() -> None:
    wider = GOOD.replace("[0.1, 0.2]", "[0.3, 0.2]").replace("seeds: 3", "name: other\nseeds: 5")
    shared = {t.trial_id for t in parse(GOOD).trials} & {t.trial_id for t in parse(wider).trials}
    assert len(shared) == 9


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


def test_a_cap_takes_the_first_trials_of_a_grid() -> None:
    capped = parse(GOOD + "run_cap: 6\n")
    assert [t.trial_id for t in capped.trials] == [t.trial_id for t in parse(GOOD).trials[:6]]


def test_a_value_that_is_listed_twice_is_the_same_trial_of_a_grid() -> None:
    for values in ("[0.1, 0.2, 0.1]", "[0.1, '0.1', 0.2]"):
        repeated = parse(GOOD.replace("[0.1, 0.2]", values))
        assert [t.trial_id for t in repeated.trials] == [t.trial_id for t in parse(GOOD).trials]
        assert repeated.repetition == (
            "9 points in the grid, 6 different ones: a repeated one is the same trial and is run once"
        )
    assert parse(GOOD).repetition == ""
