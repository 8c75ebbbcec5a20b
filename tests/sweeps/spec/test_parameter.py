"""The entries of a spec's parameters: as values, as draws, and as Optuna's space."""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from polysweep.sweeps.spec.parameter import Parameter
from polysweep.sweeps.spec.search import draw


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
    "inv_log_uniform": ({"min": 1.0, "max": 3.0}, stats.loguniform(math.exp(-3), math.exp(-1))),
    "inv_log_uniform_values": ({"min": 0.001, "max": 1.0}, stats.loguniform(0.001, 1.0)),
    "beta": ({"a": 2.0, "b": 5.0}, stats.beta(2, 5)),
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
    "q_uniform": ({"min": 0.1, "max": 0.9, "q": 0.25}, [0.0, 0.25, 0.5, 0.75, 1.0]),
    "q_log_uniform": ({"min": 0.0, "max": 2.0, "q": 2}, [2, 4, 6, 8]),
    "q_log_uniform_values": ({"min": 1, "max": 7, "q": 2}, [2, 4, 6]),
    "q_normal": ({"mu": 0.0, "sigma": 0.001, "q": 0.5}, [0.0]),
    "q_log_normal": ({"mu": 0.0, "sigma": 0.1}, [1]),
    "q_beta": ({"q": 0.3}, [0.0, 0.3, 0.6, 0.9]),
}
"""An entry of each, and all values that may be drawn: a middle of two multiples has probability 0."""


@pytest.mark.parametrize("kind", QUANTIZED)
def test_quantized_draws_are_the_nearest_multiples(kind: str) -> None:
    entry, values = QUANTIZED[kind]
    parameter = Parameter.model_validate({"distribution": kind, **entry})
    assert sorted({parameter.at(u / 1000) for u in range(1, 1000)}) == values
    if parameter.support is not None:
        assert parameter.support == values and parameter.ends == (values[0], values[-1])


def test_the_ends_of_q_uniform_have_half_the_weight_and_its_grid_ends_below_max() -> None:
    parameter = Parameter.model_validate({"distribution": "q_uniform", "min": 1, "max": 5})
    drawn = Counter(parameter.at((k + 0.5) / 800) for k in range(800))
    assert drawn == {1: 100, 2: 200, 3: 200, 4: 200, 5: 100}
    assert parameter.grid == [1, 2, 3, 4] and parameter.support == [1, 2, 3, 4, 5]


def test_whole_numbers_and_weighted_values_are_drawn_as_often_as_said() -> None:
    dice = Parameter.model_validate({"min": 1, "max": 6})
    assert [dice.at((k + 0.5) / 6) for k in range(6)] == [1, 2, 3, 4, 5, 6] == dice.grid
    assert [Parameter(values=[1, 1, 2]).at((k + 0.5) / 3) for k in range(3)] == [1, 1, 2]
    coin = Parameter.model_validate({"values": ["a", "b", "c"], "probabilities": [0.5, 0, 0.5]})
    assert [coin.at(u) for u in (0.1, 0.49, 0.51, 0.99)] == ["a", "a", "c", "c"]


@given(u=st.floats(1e-6, 1 - 1e-6))
@settings(max_examples=50)
def test_a_value_of_optunas_space_is_one_that_could_be_drawn(u: float) -> None:
    for kind, (entry, _) in {**CONTINUOUS, **QUANTIZED}.items():
        parameter = Parameter.model_validate({"distribution": kind, **entry})
        space = parameter.optuna()
        if kind.endswith(("normal", "beta")):
            raw: object = u
        elif isinstance(space.low, int):  # type: ignore[attr-defined]
            raw = space.low  # type: ignore[attr-defined]
        else:
            raw = space.low + u * (space.high - space.low)  # type: ignore[attr-defined]
        value = parameter.from_optuna(raw)
        ends = parameter.ends
        assert ends is not None and ends[0] <= value <= ends[1]
        assert parameter.support is None or value in parameter.support
        if kind == "normal":
            assert value == NormalDist(2, 3).inv_cdf(u)
