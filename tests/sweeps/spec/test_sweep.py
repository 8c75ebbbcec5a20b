"""Cells, ranges and settings of a sweep, without any code that its trials were made with."""

from __future__ import annotations

import json
import math

import pytest

from polysweep.sweeps.spec.sweep import Range, RecordedMetric, Resources, Settings, nested
from tests.support.specs import GOOD, parse


def test_cells_are_told_apart_by_what_varies_where_it_applies() -> None:
    caps = GOOD.replace("{scheduler: {value: polyak}}", "{scheduler: {value: polyak}, gamma_b: {values: [0.1, 1]}}")
    assert set(parse(caps).trials[-1].cell) == {"rho", "scheduler", "gamma_b"}
    one_cap = GOOD.replace("{scheduler: {value: polyak}}", "{scheduler: {value: polyak}, gamma_b: {value: 1}}")
    assert set(parse(one_cap).trials[-1].cell) == {"rho", "scheduler"}


def test_options_tell_cells_apart_where_they_apply() -> None:
    two = GOOD.replace(
        "model: {value: mlp}", "model: {value: mlp}\n  model_options: {values: [{hidden: 8}, {hidden: 9}]}"
    )
    assert parse(two).trials[0].cell["model_options.hidden"] == 8
    models = GOOD.replace("{value: mlp}", "{values: [mlp, resnet8]}")
    assert [dict(t.cell) for t in parse(models).trials[::18]] == [
        {"model": "mlp", "rho": 0.1, "scheduler": "constant"},
        {"model": "resnet8", "rho": 0.2, "scheduler": "constant"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("drawn_from", "inside", "at_end"),
    [
        (Range(0.0, 1.0), [0.06, 0.5, 0.94], [0.0, 0.05, 0.95, 1.0]),
        (Range(1e-4, 1.0, is_log=True), [2e-4, 0.5], [1e-4, 1.5e-4, 0.7, 1.0]),
        (Range(1.0, 9.0, is_list=True), [1.1, 8.9], [1.0, 9.0]),
        (Range(-math.inf, math.inf), [-1e300, 0.0], []),
    ],
)
def test_the_edge_of_a_range_is_a_twentieth_of_it(drawn_from: Range, inside: list[float], at_end: list[float]) -> None:
    assert [drawn_from.is_at_end(value) for value in inside] == [False] * len(inside)
    assert [drawn_from.is_at_end(value) for value in at_end] == [True] * len(at_end)


def test_settings_are_the_same_after_they_have_been_json() -> None:
    settings = Settings(
        "bayes", RecordedMetric("val/top1", "maximize", 0.5), ("lr",), ("rho", "lr"), 3, 4, True, Resources(2, 0.5, 1),
        "mine", ranges=((0, "lr", Range(-math.inf, math.inf)), (1, "lr", Range(0.1, 1.0, is_log=True))), text="a: 1",
    )  # fmt: skip
    text = json.dumps(settings.as_json(), allow_nan=False)
    assert Settings.of({**json.loads(text), "of a later version": 1}) == settings


def test_options_are_nested_and_other_names_with_a_point_are_not() -> None:
    flat = {"model_options.hidden": 8, "model_options.depth": 2, "rho": 0.1, "test.top1": 3}
    assert nested(flat) == {"model_options": {"hidden": 8, "depth": 2}, "rho": 0.1, "test.top1": 3}
