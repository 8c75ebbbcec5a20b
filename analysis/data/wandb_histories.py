"""The histories in an answer of W&B's server: lines of JSON, parsed by Arrow."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.json
from pyarrow import compute as pc

from polysweep.analysis.data.frames import SPECIAL, to_arrow
from polysweep.trainer.text import one_line


def lines_of(answer: bytes, runs: int) -> list[pa.Array]:
    """By alias the lines of a run's history, taken out of the answer by Arrow: Python would hold up other requests."""
    table = pyarrow.json.read_json(pa.BufferReader(answer), read_options=_in_one_block(answer))
    project = table["project"].combine_chunks()
    lines = []
    for at in range(runs):
        rows: Any = project
        for name in (f"r{at}", "history"):  # null where the project or the run has gone meanwhile
            rows = rows.field(name) if pa.types.is_struct(rows.type) else pa.nulls(0)
        is_text = pa.types.is_list(rows.type) and pa.types.is_string(rows.type.value_type)
        lines.append(rows.values if is_text else pa.array([], pa.string()))
    return lines


def _in_one_block(content: bytes) -> Any:
    return pyarrow.json.ReadOptions(block_size=max(1 << 20, len(content) + 1))


def parsed(lines: pa.Array) -> pa.Table:
    """Rows of JSON as a table; NaN and infinities, which the server sends as text, are numbers again."""
    if not len(lines):
        return pa.table({})
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    content: bytes = pc.binary_join(whole, "\n")[0].as_buffer().to_pybytes()
    if b"NaN" in content or b"Infinity" in content:
        for name in SPECIAL:
            content = content.replace(f'"{name}"'.encode(), name.encode())
    try:
        table = pyarrow.json.read_json(pa.BufferReader(content), read_options=_in_one_block(content))
        if not any(pa.types.is_nested(field.type) or pa.types.is_timestamp(field.type) for field in table.schema):
            return table.rename_columns([one_line(name) for name in table.column_names])
    except pa.ArrowException:
        pass  # a column of two kinds, or a text that is NaN
    rows = [json.loads(line) for line in lines.to_pylist()]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({one_line(name): to_arrow([row.get(name) for row in rows]) for name in names})
