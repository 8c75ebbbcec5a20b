"""The history of a trial as a file: every bit is kept, and damage is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.sweeps.planning.status import status_of
from polysweep.sweeps.store import history_file
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.history_file import history_table
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.claimed import ID
from tests.support.made import by_lr, sweep
from tests.support.made_sweeps import ids

ROWS = [{**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": e, "step": e, "partial": False} for e in (1, 2, 3)]


def _history(rows: list[dict[str, Any]], **columns: Any) -> bytes:
    table = pa.table({**{name: [row[name] for row in rows] for name in rows[0]}, **columns})
    sink = pa.BufferOutputStream()
    parquet.write_table(table.drop_columns([name for name, values in columns.items() if values is None]), sink)
    return bytes(sink.getvalue())


def _without(name: str) -> bytes:
    return _history([{key: value for key, value in row.items() if key != name} for row in ROWS])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PAR", ""), (b"PAR1" * 100, ""), (_without("gamma/mean"), "no column gamma/mean"),
        (_history(ROWS, **{"test/loss": ["a", "b", "c"]}), "column 'test/loss' is of string, expected double"),
        (_history(ROWS, **{"test/loss": [[1.0]] * 3}), "column 'test/loss' is of list"),
        (_history(ROWS, partial=["x"] * 3), "column 'partial' is of string, expected bool"),
        (_history(ROWS, epoch=[1.0, 2.0, 3.0]), "column 'epoch' is of double, expected int64"),
        (_history(ROWS, epoch=[1, 3, 2]), "its epochs are not 1 to 3"), (_history(ROWS, epoch=[0, 1, 2]), "its epochs"),
        (_history(ROWS, epoch=pa.array([1, None, 3], pa.int64())), "its epochs are not 1 to 3"),
    ],
)  # fmt: skip
def test_what_is_no_history_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(StoreError, match=f"^h.parquet: damaged: {reason}"):
        history_table(content, "h.parquet")


def test_every_flipped_bit_of_a_history_is_damage_or_leaves_its_numbers(tmp_path: Path) -> None:
    """Pages have checksums; what is between them is either found out or says nothing of the numbers."""
    store = Store(str(tmp_path))
    store.write_history("t", ROWS)
    content = (tmp_path / "trials/t/history.parquet").read_bytes()
    whole = history_table(content, "h").to_pylist()
    found = 0
    for at in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        try:
            assert history_table(bytes(flipped), "h").to_pylist() == whole
        except StoreError:
            found += 1
    assert found > 100


def test_history_keeps_every_bit_and_its_types(root: str) -> None:
    store = Store(root)
    rows = [{**dict.fromkeys(HISTORY_COLUMNS), "epoch": 1, "step": 3, "train/loss": 0.1 + 0.2, "partial": False}]
    store.write_history(ID, rows)
    assert store.history(ID) == rows
    found = store.history(ID)[0]
    assert [type(found[n]) for n in ("epoch", "step", "train/loss", "val/loss", "partial")] == [
        int, int, float, type(None), bool,
    ]  # fmt: skip


def test_a_column_that_a_later_version_has_added_is_null_in_older_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = select(sweep(tmp_path, by_lr)).cells
    monkeypatch.setattr(history_file, "HISTORY_COLUMNS", (*HISTORY_COLUMNS, "curvature"))
    store = Store(str(tmp_path))
    assert status_of(store.launched("made"), store)["counts"]["finished"] == 24
    runs = pull("made", store=store, cache=tmp_path / "other-cache")
    assert select(runs).cells.equals(before)
    assert runs.history["curvature"].isna().all() and len(runs.history) == 72
    assert store.history(ids(store.launched("made"))[0])[0]["curvature"] is None


def test_a_history_that_an_older_version_began_keeps_the_columns_of_its_later_rows(root: str) -> None:
    """Its checkpoint has rows without them."""
    store = Store(root)
    before = {**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": 1, "step": 3, "partial": False}
    store.write_history(ID, [before, {**before, "epoch": 2, "test/ece": 0.25}])
    assert [row["test/ece"] for row in store.history(ID)] == [None, 0.25]
