"""What selects: the held-out images if there are some, or another metric; a test column never does unasked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.tables.choice import select
from polysweep.trainer.config import TrialConfig
from tests.support.made import SPEC, by_lr, cell, sweep


def on_validation(folder: Path, test: Callable[[TrialConfig, int], float]) -> RunSet:
    """A sweep that selects on held-out images; `test` is the test accuracy by config and epoch."""
    parameters = {**SPEC["parameters"], "val_fraction": {"value": 0.1}}
    pulled = sweep(folder, by_lr, parameters=parameters, metric={"name": "val/top1", "goal": "maximize"})
    from polysweep.sweeps.store.store import Store

    store = Store(str(folder))
    for trial in store.launched("made").trials:
        rows = store.history(trial.trial_id)
        for row in rows:
            row["val/top1"], row["test/top1"] = row["test/top1"], test(trial.config, row["epoch"])
            row["test/loss"] = -row["test/top1"]
        store.write_history(trial.trial_id, rows)
    from polysweep.analysis.data.pulling import pull

    return pull(pulled.protocol.name, store=store, cache=folder / "cache")


def test_scrambled_test_columns_never_change_a_choice_by_validation(tmp_path: Path) -> None:
    def scrambled(seed: int) -> Callable[[TrialConfig, int], float]:
        rng = np.random.default_rng(seed)
        return lambda _config, _epoch: float(rng.random())

    chosen = []
    for seed in range(6):
        pulled = on_validation(tmp_path / str(seed), scrambled(seed))
        for metric in ("val/top1", "test/top1"):
            selection = select(pulled, metric=metric)
            assert selection.selected_on == "val"
            chosen.append((selection.cells["selected"].tolist(), selection.values["best_epoch"].tolist()))
    assert all(choice == chosen[0] for choice in chosen)
    backwards = replace(pulled, runs=pulled.runs.iloc[::-1].reset_index(drop=True))
    first, same = (select(one, metric="val/top1", by="test/top1").cells for one in (pulled, backwards))
    assert sorted(first["mean"]) == sorted(same["mean"]), "whatever the order of the rows"
    other = select(pulled, metric="test/top1", by="test/top1")
    assert other.selected_on == "test" and other.values["best_epoch"].tolist() != chosen[0][1]


def test_another_metric_may_select(tmp_path: Path) -> None:
    def fall(config: TrialConfig, epoch: int) -> float:
        return 0.5 + 0.1 * (config.lr == 0.01) - 0.01 * epoch

    pulled = on_validation(tmp_path, fall)
    by_test = select(pulled, metric="test/top1", by="test/top1")
    assert cell(by_test, 0.1, "constant")["lr"] == 0.01
    assert set(by_test.values["best_epoch"]) == {1}
    assert cell(by_test, 0.1, "constant")["mean"] == pytest.approx(0.59)
    assert cell(select(pulled, metric="test/top1"), 0.1, "constant")["lr"] == 0.1
