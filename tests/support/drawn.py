"""Sweeps whose figures are drawn, and what a figure shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import yaml

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.files import NamedFigure
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.selection import Selection
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.trainer.config import TrialConfig
from tests.support.made import SPEC, by_lr, sweep
from tests.support.project import ROOT

PARAMETERS: dict[str, Any] = SPEC["parameters"]  # type: ignore[assignment]
NAMES = ["robustness", "curves", "ascent-gain", "gamma", "budget", "stability-lr-scheduler-constant", "score"]
"""The figures of the sweep of tests/support/made.py."""


@pytest.fixture(scope="session")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> RunSet:
    """The sweep of tests/support/made.py, all of it finished."""
    return sweep(tmp_path_factory.mktemp("plain"), by_lr)


def three(config: TrialConfig) -> list[float]:
    """SAM is ahead of USAM, and SGD behind, which has no radius."""
    return [value + {"sam": 0.02, "usam": 0.0, "sgd": -0.03}[config.optimizer] for value in by_lr(config)]


@pytest.fixture(scope="session")
def optimizers(tmp_path_factory: pytest.TempPathFactory) -> Selection:
    """The example of the docs, in small."""
    text = next(re.finditer(r"```yaml\n(.*?)```", docs(), re.DOTALL))[1]
    spec = SweepSpec.parse(text, "docs/analysis.md")
    assert len(spec.trials) == 3 * (3 + 1 + 2 * 4 * 3 + 2 * 4), "the example of the docs plans"
    changes = yaml.safe_load(text)
    changes["parameters"] |= {
        "model": {"value": "mlp"},
        "epochs": {"value": 3},
        "weight_decay": {"values": [0.0, 5e-4]},
    }
    return select(sweep(tmp_path_factory.mktemp("three"), three, **changes))


@pytest.fixture(scope="session")
def drawn(optimizers: Selection) -> dict[str, NamedFigure]:
    """Its figures, which no test changes."""
    return {one.name: one for one in figures(optimizers)}


def docs() -> str:
    return (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")


def with_field(pulled: RunSet, name: str, change: Callable[[Any], Any]) -> Selection:
    """The sweep with other values of a field, as a W&B project may have them."""
    values = [None if pd.isna(value) else change(value) for value in pulled.runs[name]]
    return select(replace(pulled, runs=pulled.runs.assign(**{name: pd.Series(values, dtype=object)})))


def texts(one: NamedFigure) -> list[str]:
    return [text.get_text() for ax in one.figure.axes for text in ax.texts]


def has_data(one: NamedFigure) -> bool:
    return any(len(line.get_xdata()) for ax in one.figure.axes for line in ax.get_lines()) or any(
        ax.patches or ax.collections for ax in one.figure.axes
    )
