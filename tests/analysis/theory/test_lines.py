"""Curves of a sweep of convex problems: their labels, and what the bounds do not speak of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from polysweep import pull, select
from polysweep.analysis.theory.figures import theory_figures
from polysweep.analysis.theory.lines import lines_of
from polysweep.analysis.theory.text import render_theory
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from tests.support.made import sweep as made_sweep
from tests.support.theory import trained


def test_cells_that_diverged_and_methods_that_differ_in_a_setting_are_told_apart(tmp_path: Path) -> None:
    text = """
name: odd
metric: {name: suboptimality/relative, goal: minimize}
parameters: {task: {value: ridge}, model: {value: linear}, optimizer: {value: usam}, batch_size: {value: 100},
  epochs: {value: 120}}
variants:
  - {scheduler: {value: oikonomou2025}, scheduler_options.setting: {values: [deterministic, stochastic]}}
  - {scheduler: {value: polyak}, rho: {value: 1.0}, rho_schedule: {value: inverse}}
  - {scheduler: {value: polyak}, rho: {value: 1.0}, lower_bound: {value: 0.5}}
  - {scheduler: {value: constant}, rho: {value: 0.0}, lr: {values: [2000.0, 1.0e+200]}}
seeds: 2
"""
    trained(text, tmp_path / "store")
    pulled = pull("odd", store=Store(str(tmp_path / "store")), cache=tmp_path / "cache")
    assert set(pulled.runs[pulled.runs["scheduler"] == "constant"]["outcome"]) == {"diverged"}
    found = lines_of(select(pulled, epoch="last"))
    labels = [line.label for line in found]
    assert len(set(labels)) == 6 and {"oikonomou2025 setting=deterministic", "oikonomou2025 setting=stochastic"} < set(
        labels
    )
    assert not any(line.statements for line in found), (
        "no theorem is about a cap with a decreasing radius, or a bound of 0.5"
    )
    out = render_theory(found, "odd")
    assert re.search(r"\| usam constant rho=0.0 lr=2000.0 +\| diverged 2/2 ", out)
    assert len(list(theory_figures(found, "odd"))) == 1


def test_what_the_bounds_do_not_speak_of_is_refused(tmp_path: Path) -> None:
    from tests.support.made import by_lr

    made_sweep(tmp_path / "a", by_lr, name="digits-sweep")
    pulled = pull("digits-sweep", store=Store(str(tmp_path / "a")), cache=tmp_path / "cache")
    with pytest.raises(UserError, match=r"convex tasks with known constants \(ridge, logistic\), not for"):
        lines_of(select(pulled, epoch="last"))
    text = """
name: far
metric: {name: distance, goal: minimize}
parameters: {task: {value: ridge}, model: {value: linear}, optimizer: {value: usam}, batch_size: {value: 100},
  scheduler: {value: polyak-deterministic}, rho: {value: 12.0}, epochs: {value: 3}}
"""
    trained(text, tmp_path / "b")
    pulled = pull("far", store=Store(str(tmp_path / "b")), cache=tmp_path / "cache")
    with pytest.raises(
        UserError, match=r"rho = 12 of usam polyak-deterministic rho=12.0 is above 1/L = 10: no theorem"
    ):
        lines_of(select(pulled, epoch="last"))
