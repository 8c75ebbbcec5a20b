"""What was pulled, kept as Parquet: a second pull reads only what has changed, and writes only that.

A cache is one folder: `runs.parquet`, and the histories in shards `history-<token>.parquet`. `runs.parquet` lists the
shards and says of each run in which one its rows are, so that a reader never sees the runs of one pull with the history
of another. It can be removed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from filelock import FileLock
from pyarrow import parquet

from polysweep.analysis.data.frames import empty_history, joined, runs_of
from polysweep.sweeps.console import warn
from polysweep.trainer.errors import UserError

FORMAT: Final = b"2"
DEFAULT: Final = "./polysweep-cache"
MOST_SHARDS: Final = 8
SMALL: Final = 0.25
"""The share of the rows up to which a change is a shard of its own."""


@dataclass(frozen=True)
class File:
    """A shard on disk, opened: it can be read although another process has removed it since."""

    name: str
    source: parquet.ParquetFile

    @classmethod
    def open(cls, path: Path) -> File:
        """Raises `FileNotFoundError` for a missing file."""
        return cls(path.name, parquet.ParquetFile(path, memory_map=True))


@dataclass(frozen=True)
class Cached:
    """Runs, and their histories where they are asked for.

    `runs` has at least `trial_id`, `stamp` (what tells that a run has changed), `rows` (of its history), and where they
    are: `shard` and `start`. `shards` are files, or tables where they are in memory.
    """

    runs: pa.Table
    shards: tuple[File | pa.Table, ...] = ()

    def history(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The history, one run after the other; of `columns` those that there are."""
        if not self.shards:
            return empty_history()
        tables = [_shard(shard, columns) for shard in self.shards]
        table = tables[0] if len(tables) == 1 else joined(tables)
        bases = np.cumsum([0, *(part.num_rows for part in tables)])
        shard, start, rows = (self.runs[name].to_numpy() for name in ("shard", "start", "rows"))
        first = bases[shard] + start
        index = np.repeat(first - (np.cumsum(rows) - rows), rows) + np.arange(int(rows.sum()))
        if len(index) == table.num_rows and (index == np.arange(len(index))).all():
            return table
        return table.take(pa.array(index))

    @property
    def places(self) -> dict[str, int]:
        """By trial id its row."""
        return {trial_id: at for at, trial_id in enumerate(runs_of(self.runs))}

    def metadata(self, key: str) -> str:
        """The metadata saved under a key; an empty text if there is none."""
        return ((self.runs.schema.metadata or {}).get(key.encode()) or b"").decode()

    def updated(self, ids: Sequence[str], runs: pa.Table, history: pa.Table) -> Cached:
        """The runs `ids` in their order: those of `runs` with their `history`, all others as they are here."""
        fresh = set(runs_of(runs))
        here = self.places
        kept = self.runs.take(pa.array([here[trial_id] for trial_id in ids if trial_id not in fresh], pa.int64()))
        shards = (*self.shards, history) if kept.num_rows else (history,)
        added = _placed(runs, len(shards) - 1)
        tables = [table for table in (kept.replace_schema_metadata(None), added) if table.num_rows]
        updated = Cached(_in_order(joined(tables) if tables else added, ids), shards)
        return updated if kept.num_rows and self._takes_a_shard(history, updated) else updated.compact()

    def _takes_a_shard(self, history: pa.Table, updated: Cached) -> bool:
        """Whether a change is small enough, and the shards few enough, to leave those that there are as they are."""
        rows = int(np.sum(updated.runs["rows"].to_numpy()))
        return len(self.shards) < MOST_SHARDS and history.num_rows <= SMALL * rows

    def compact(self) -> Cached:
        """The same in one shard, the runs one after the other."""
        rows = np.asarray(self.runs["rows"].to_numpy(), dtype=np.int64)
        runs = _replace(self.runs, "shard", np.zeros(len(rows), dtype=np.int64))
        return Cached(_replace(runs, "start", np.cumsum(rows) - rows), (self.history(),))


EMPTY: Final = Cached(
    pa.table(
        {
            "trial_id": pa.array([], pa.string()),
            "stamp": pa.array([], pa.string()),
            **{name: pa.array([], pa.int64()) for name in ("rows", "shard", "start")},
        }
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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock between reading and replacing the cache; does nothing if the folder cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / "lock")
            lock.acquire()
        except OSError:
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def load(self) -> Cached:
        """What is there. A damaged cache is named on stderr and counts as none: everything is read again."""
        path = self.folder / "runs.parquet"
        for last in (False, True):
            try:
                return self._read(path)
            except FileNotFoundError as error:
                if not path.exists():
                    break
                if last:  # else another process has just replaced it
                    self._say(error)
            except (
                OSError,
                ValueError,
                LookupError,
                TypeError,
                RecursionError,
                MemoryError,
                pa.ArrowException,
            ) as error:
                self._say(error)
                break
        return EMPTY

    def _read(self, path: Path) -> Cached:
        runs = parquet.read_table(path)
        metadata: Mapping[bytes, bytes] = runs.schema.metadata or {}
        if metadata.get(b"format") != FORMAT or metadata.get(b"identity") != self.identity.encode():
            raise ValueError("it is of another version")
        shards = [File.open(self.folder / name) for name in json.loads(metadata[b"shards"])]
        sizes = np.array([shard.source.metadata.num_rows for shard in shards], dtype=np.int64)
        shard, start, rows = (runs[name].to_numpy() for name in ("shard", "start", "rows"))
        if len(rows) and (start + rows > sizes[shard]).any():
            raise ValueError("a history does not have the rows that runs.parquet counts")
        return Cached(runs, tuple(shards))

    def _say(self, error: Exception) -> None:
        reason = " ".join(str(error).split())
        warn(f"the cache {self.folder} is damaged and is rebuilt: {reason}")

    def save(self, cached: Cached, **metadata: str) -> Cached:
        """Replaces the cache. If it cannot be written, warns, and keeps the result in memory only."""
        names = [
            shard.name if isinstance(shard, File) else f"history-{uuid.uuid4().hex}.parquet" for shard in cached.shards
        ]
        described: dict[Any, Any] = {
            **{key.encode(): value.encode() for key, value in metadata.items()},
            b"format": FORMAT,
            b"identity": self.identity.encode(),
            b"shards": json.dumps(names).encode(),
        }
        runs = cached.runs.replace_schema_metadata(described)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for shard, name in zip(cached.shards, names, strict=True):
                if not isinstance(shard, File):
                    _write(shard, self.folder / name)
            _write(runs, self.folder / "runs.parquet")
        except OSError as error:
            warn(f"the cache {self.folder} cannot be written: {error}")
            return Cached(runs, cached.shards)
        for old in self.folder.glob("*.parquet"):
            if old.name not in (*names, "runs.parquet"):
                with suppress(OSError):
                    old.unlink()
        return Cached(runs, cached.shards)


def _shard(shard: File | pa.Table, columns: Sequence[str] | None) -> pa.Table:
    """A shard, with those of the columns that it has."""
    names = None if columns is None else [name for name in columns if name in shard_columns(shard)]
    if not isinstance(shard, File):
        return shard if names is None else shard.select(names)
    try:
        return shard.source.read(names)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"the cache file {shard.name} is damaged ({error}); remove the cache") from None


def shard_columns(shard: File | pa.Table) -> list[str]:
    """The columns of a shard."""
    names: list[str] = shard.source.schema_arrow.names if isinstance(shard, File) else shard.column_names
    return names


def _placed(runs: pa.Table, shard: int) -> pa.Table:
    """The runs with where their rows are: in one shard, one run after the other."""
    rows = np.asarray(runs["rows"].to_numpy(), dtype=np.int64)
    placed = runs.append_column("shard", pa.array(np.full(len(rows), shard, dtype=np.int64)))
    return placed.append_column("start", pa.array(np.cumsum(rows) - rows))


def _in_order(runs: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The rows of a table of runs in the order of `ids`."""
    row_of = {trial_id: row for row, trial_id in enumerate(runs_of(runs))}
    return runs.take(pa.array([row_of[trial_id] for trial_id in ids], pa.int64()))


def _replace(table: pa.Table, name: str, values: np.ndarray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values, pa.int64()))


def _write(table: pa.Table, path: Path) -> None:
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        dictionary = ["trial_id"] if path.name.startswith("history") else False
        parquet.write_table(table, temporary, compression="lz4", use_dictionary=dictionary)
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def cache_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the caches: `given`, else POLYSWEEP_CACHE, else ./polysweep-cache."""
    return Path(folder or os.environ.get("POLYSWEEP_CACHE") or DEFAULT).absolute()
