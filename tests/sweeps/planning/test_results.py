"""The value of a trial is that of the tables: at the first of the best epochs, or at the last."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from polysweep.analysis.data.frames import to_python
from polysweep.sweeps.planning.results import best_epoch, values_of
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from tests.support.made import ids, sweep


def curve(config: TrialConfig) -> list[float] | str:
    if config.seed == 2:
        return "diverged"
    return [0.5, 0.9 - (config.rho or 0), 0.9 - (config.rho or 0)] if config.seed else [0.7, 0.6, 0.8]


@pytest.mark.parametrize("metric", ["test/top1", "test/loss"])
def test_values_are_those_of_the_frames(tmp_path: Path, metric: str) -> None:
    pulled = sweep(tmp_path, curve)
    finished = pulled.runs[pulled.runs["outcome"] == "finished"]
    store = Store(str(tmp_path))
    for which, is_last in (("best", False), ("last", True)):
        expected = dict(zip(finished["trial_id"], to_python(finished[f"{which}/{metric}"]), strict=True))
        values = values_of(store, ids(pulled), metric, by="test/top1", is_maximal=True, is_last=is_last)
        assert {i: values[i] for i in expected} == expected


def test_the_first_of_the_best_finite_values() -> None:
    assert best_epoch([0.1, math.inf, 0.3, None, 0.3, math.nan], is_maximal=True) == 2
    assert best_epoch([0.1, -math.inf, 0.05, 0.05], is_maximal=False) == 2
    assert best_epoch([None, math.nan], is_maximal=True) is None


def test_a_damaged_or_missing_history_has_no_value(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, curve)
    first, second = ids(pulled)[:2]
    (tmp_path / "trials" / first / "history.parquet").write_bytes(b"no parquet")
    values = values_of(Store(str(tmp_path)), [first, second, "0" * 16], "test/top1", by="test/top1", is_maximal=True)
    assert list(values) == [second]
    assert values_of(Store(str(tmp_path)), [second], "val/top9", by="test/top1", is_maximal=True) == {}
