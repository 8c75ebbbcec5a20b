"""The history of a trial as a Parquet file: written with a checksum, read only if it is whole."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from polysweep.sweeps.store.files import StoreError
from polysweep.trainer.history import HISTORY_COLUMNS, RENAMED
from polysweep.trainer.text import brief, first_line

_KINDS: Final = {"epoch": pa.int64(), "step": pa.int64(), "partial": pa.bool_()}
"""The types of the columns that are not float64: the same in every trial."""


_ALWAYS: Final = (
    "epoch", "step", "train/loss", "train/top1", "train/top5", "val/loss", "val/top1", "val/top5",
    "test/loss", "test/top1", "test/top5", "gamma/mean", "gamma/min", "gamma/max", "gamma/cap_share",
    "gamma/zero_share", "grad_norm/x", "grad_norm/e", "ascent_gain", "images_per_second", "seconds", "partial",
)  # fmt: skip
"""The columns that every version has written: a history without one of them is damaged. Later ones may be missing."""


def history_bytes(rows: Sequence[Mapping[str, Any]], generation: int) -> bytes:
    """The file's content; it names the claim's `generation`, so that no two claims write the same bytes."""
    names = dict.fromkeys(name for row in rows for name in row)  # the first ones may be of an older version
    schema = pa.schema([(name, _KINDS.get(name, pa.float64())) for name in names])
    table = pa.Table.from_pylist(list(rows), schema=schema.with_metadata({"claim": str(generation)}))
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, write_page_checksum=True)  # a flipped bit is detected, not plotted
    return buffer.getvalue()


def history_table(content: bytes | None, path: str) -> pa.Table:
    """A trial's history with the names that columns have now; a table without columns if it does not exist.

    A column that a later version has added is null.

    Raises `StoreError` if it is not a Parquet file, lacks a column, has one of another type, or if its epochs are not
    1 .. n.
    """
    if content is None:
        return pa.table({})
    try:
        file = parquet.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        table = file.read(use_threads=False)
        table.validate(full=True)
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        MemoryError,
    ) as error:  # pyarrow raises any of them
        raise StoreError(f"{path}: damaged: {first_line(error)}") from None
    table = table.rename_columns([RENAMED.get(column, column) for column in table.column_names])
    if not table.num_rows:
        return table
    _require_columns(table, path)
    for name in HISTORY_COLUMNS:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, _KINDS.get(name, pa.float64())))
    return table


def _require_columns(table: pa.Table, path: str) -> None:
    """Raise `StoreError` if the columns of a history are not those that `Store.write_history` writes."""
    names = table.column_names
    if missing := [column for column in _ALWAYS if column not in names]:
        raise StoreError(f"{path}: damaged: no column {', '.join(missing)}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise StoreError(f"{path}: damaged: column {twice[0]!r} occurs twice")
    for field in table.schema:
        if field.type != _KINDS.get(field.name, pa.float64()):
            kind = _KINDS.get(field.name, pa.float64())
            raise StoreError(f"{path}: damaged: column {brief(field.name)} is of {field.type}, expected {kind}")
    if table["epoch"].to_pylist() != list(range(1, table.num_rows + 1)):
        raise StoreError(f"{path}: damaged: its epochs are not 1 to {table.num_rows}")
