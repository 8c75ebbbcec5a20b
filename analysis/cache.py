"""What was pulled, kept as Parquet: a second pull reads only what has changed.

A cache is one folder: `runs.parquet`, which names its `history-<token>.parquet`, so that a reader never sees the runs
of one pull with the history of another. It can be removed at any time.
"""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from analysis.frames import empty_history, joined, rows_of, runs_of
from trainer.registry import UserError

FORMAT: Final = b"1"
DEFAULT: Final = "./polysweep-cache"


@dataclass(frozen=True)
class Cached:
    """Runs, and their histories where they are asked for.

    `runs` has at least `trial_id`, `stamp` (what tells that a run has changed) and `rows` (of its history).
    """

    runs: pa.Table
    file: Path | None = None
    held: pa.Table | None = None  # the history, where it is in memory

    def history(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The history, one run after the other; of `columns` those that there are."""
        if self.held is not None:
            held = self.held
            return held if columns is None else held.select([name for name in columns if name in held.column_names])
        if self.file is None:
            return empty_history()
        try:
            source = parquet.ParquetFile(self.file, memory_map=True)
            there = None if columns is None else [name for name in columns if name in source.schema_arrow.names]
            return source.read(there)
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"the cache {self.file} is damaged ({error}); remove {self.file.parent}") from None

    @property
    def places(self) -> dict[str, int]:
        """By trial id its row."""
        return {trial_id: at for at, trial_id in enumerate(runs_of(self.runs))}


EMPTY: Final = Cached(
    pa.table(
        {"trial_id": pa.array([], pa.string()), "stamp": pa.array([], pa.string()), "rows": pa.array([], pa.int64())}
    )
)


@dataclass
class Cache:
    """The cache of one source: below `root` a folder named after what identifies it."""

    root: Path
    identity: str
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.root / hashlib.sha256(self.identity.encode()).hexdigest()[:16]

    def load(self) -> Cached:
        """What is there. A damaged cache is named on stderr and counts as none: everything is read again."""
        path = self.folder / "runs.parquet"
        try:
            runs = parquet.read_table(path)
            said: Mapping[bytes, bytes] = runs.schema.metadata or {}
            if said.get(b"format") != FORMAT or said.get(b"identity") != self.identity.encode():
                raise ValueError("it is of another version")
            history = self.folder / said[b"history"].decode()
            if parquet.read_metadata(history).num_rows != sum(runs["rows"].to_pylist()):
                raise ValueError(f"{history.name} has not the rows that runs.parquet counts")
            return Cached(runs, history)
        except FileNotFoundError as error:
            if path.exists():
                self._say(error)
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            self._say(error)
        return EMPTY

    def _say(self, error: Exception) -> None:
        reason = " ".join(str(error).split())
        print(f"warning: the cache {self.folder} is damaged and is made anew: {reason}", file=sys.stderr)

    def save(self, runs: pa.Table, history: pa.Table, **metadata: str) -> Cached:
        """Replace what is there. Where nothing can be written the result is kept in memory only, which is said."""
        name = f"history-{uuid.uuid4().hex}.parquet"
        said: dict[Any, Any] = {
            **{key.encode(): value.encode() for key, value in metadata.items()},
            b"format": FORMAT,
            b"identity": self.identity.encode(),
            b"history": name.encode(),
        }
        runs = runs.replace_schema_metadata(said)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(history, self.folder / name)
            _write(runs, self.folder / "runs.parquet")
        except OSError as error:
            print(f"warning: the cache {self.folder} cannot be written: {error}", file=sys.stderr)
            return Cached(runs, held=history)
        for old in self.folder.glob("*.parquet"):
            if old.name not in (name, "runs.parquet"):
                with suppress(OSError):
                    old.unlink()
        return Cached(runs, self.folder / name, history)


def merge(old: Cached, ids: Sequence[str], runs: pa.Table, history: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The runs `ids` in their order: those of `runs` with their `history`, all others as they were in `old`."""
    fresh = {trial_id: at for at, trial_id in enumerate(runs_of(runs))}
    kept = old.places
    keep = [kept[trial_id] for trial_id in ids if trial_id not in fresh]
    merged = joined([old.runs.take(pa.array(keep, pa.int64())).replace_schema_metadata(None), runs])
    if keep:
        past = rows_of(old.history(), old.runs["rows"].to_pylist(), keep)
        history = joined([past, history])
    at = {trial_id: place for place, trial_id in enumerate(runs_of(merged))}
    order = [at[trial_id] for trial_id in ids]
    if order != list(range(len(order))):
        history = rows_of(history, merged["rows"].to_pylist(), order)
        merged = merged.take(pa.array(order, pa.int64()))
    return merged, history


def _write(table: pa.Table, path: Path) -> None:
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        parquet.write_table(
            table, temporary, compression="lz4", use_dictionary=["trial_id"] if path.name.startswith("h") else False
        )
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def cache_root(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the caches: `given`, else POLYSWEEP_CACHE, else ./polysweep-cache."""
    return Path(given or os.environ.get("POLYSWEEP_CACHE") or DEFAULT).absolute()
