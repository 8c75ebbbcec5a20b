"""Any fields down and any across, and a table for each choice of the others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import polysweep
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.report.html import render_report
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.layout import Layout, subtables
from polysweep.analysis.tables.mean_std import mean_std_table
from polysweep.trainer.errors import UserError
from tests.support.made import CAPS, SPEC, by_lr, sweep


def test_any_fields_may_be_rows_and_columns(tmp_path: Path) -> None:
    selection = select(sweep(tmp_path, by_lr, **CAPS))
    layout = Layout.of(selection, ["optimizer", "rho"], ["scheduler", "gamma_b"])
    text = render(selection, "markdown", layout)
    assert text.splitlines()[2:4] == [
        "| optimizer | rho | constant -        | polyak 0.5        | polyak 1.0        | polyak 10.0       |",
        "|-----------|-----|-------------------|-------------------|-------------------|-------------------|",
    ]
    assert "| usam      | 0.1 | **90.00 +- 1.00** | **95.00 +- 1.00** |" in text, "24 pairs: not to be told apart"
    by_cap = Layout.of(selection, ["gamma_b"], ["rho"])
    assert (by_cap.rows, by_cap.cols, by_cap.by) == (("gamma_b",), ("rho",), ("scheduler", "optimizer"))
    frame = mean_std_table(selection, rows=["rho"], cols=["scheduler", "gamma_b"], by=["optimizer"])
    assert frame.index.names == ["optimizer", "rho"] and frame.columns.names == ["scheduler", "gamma_b"]
    assert frame.loc[("sam", "0.4"), ("polyak", "1.0")] == "92.00 +- 1.00"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"rows": ["rhoo"]},
            "--rows: unknown field 'rhoo'; did you mean 'rho'? expected one of gamma_b, optimizer, rho",
        ),
        ({"rows": ["rho"], "cols": ["rho"]}, "--cols: 'rho' is in --rows already"),
        ({"by": "model"}, "--by: 'model' does not vary: it is mlp in every trial; expected one of gamma_b, optimizer"),
        ({"rows": "lr"}, "--rows: 'lr' is tuned: each cell has its chosen value; expected one of gamma_b, optimizer"),
        ({"cols": ["seed"]}, "--cols: 'seed' is what the means are over; expected one of gamma_b, optimizer"),
    ],
)
def test_a_wrong_layout_is_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    selection = select(sweep(tmp_path, by_lr, **CAPS))
    with pytest.raises(UserError, match=re.escape(message)):
        Layout.of(selection, **options)


def test_the_public_names_are_there() -> None:
    assert {"pull", "select", "mean_std_table", "plot_robustness"} <= set(dir(polysweep))
    assert all(getattr(polysweep, name) is not None for name in polysweep.__all__)


def test_one_table_per_remaining_parameter(tmp_path: Path) -> None:
    changed = json.loads(json.dumps(SPEC))
    changed["variants"][1]["gamma_b"] = {"values": [0.5, 1]}
    changed["parameters"]["optimizer"] = {"values": ["usam", "sam"]}
    selection = select(sweep(tmp_path, by_lr, **changed))
    tables = list(subtables(selection))
    assert [values for values, _ in tables] == [
        {"optimizer": o, "gamma_b": g} for o in ("usam", "sam") for g in (0.5, 1.0)
    ]
    assert all(len(cells) == 4 for _, cells in tables), "the constant step size stands in each"
    text = render(selection, "markdown")
    assert "made (optimizer = sam, gamma_b = 0.5): " in text
    assert len(render(selection, "csv").splitlines()) == 1 + 2 * (2 + 4)


@pytest.mark.parametrize(
    "parameters",
    [{"model": {"values": ["mlp", "resnet8"]}}, {"model_options": {"values": [{"hidden": 8}, {"hidden": 16}]}}],
)
def test_models_and_options_may_vary(tmp_path: Path, parameters: dict) -> None:
    selection = select(sweep(tmp_path, by_lr, parameters={**SPEC["parameters"], **parameters}))
    assert len(list(subtables(selection))) == 2
    assert render(selection, "markdown").count("90.00 +- 1.00") == 2
    assert len({one.name for one in figures(selection)}) == 2 * 5 + 2 + 1


def test_an_optimizer_without_a_radius_has_a_row_of_its_own(tmp_path: Path) -> None:
    parameters = {k: v for k, v in SPEC["parameters"].items() if k != "rho"} | {"optimizer": {"value": "sgd"}}
    selection = select(sweep(tmp_path, by_lr, parameters=parameters))
    assert "| -   | 91.00 +- 1.00 | **96.00 +- 1.00** |" in render(selection, "markdown")
    assert next(figures(selection)).name == "means"
    assert "<h2" in render_report(selection)
