"""Cells, ranges and settings of a sweep, without any code that its trials were made with."""

from __future__ import annotations

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
