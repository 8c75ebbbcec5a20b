"""Durable trial records: one folder of small files, the truth about every trial.

    trials/<trial_id>/config.json, record.json, history.parquet, checkpoint.pt, checkpoint-before.pt, claim-<n>.json
    sweeps/<name>/spec.yaml, trials.json

Every write is atomic and durable: a reader sees the old file or the new one, also after a crash. A claim is created
exclusively, so that two launches never run one trial.
"""

from __future__ import annotations

import io
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import fsspec
import pyarrow as pa
from pyarrow import parquet

from sweeps.plan import FINAL, TrialState
from sweeps.process import Process
from sweeps.spec import NAME_PATTERN, SweepSpec
from trainer.history import HISTORY_COLUMNS
from trainer.registry import UserError

FORMAT: Final = 1
STALE_SECONDS: Final = 60.0
HEARTBEAT_SECONDS: Final = 10.0
_CLAIM = re.compile(r"claim-([0-9]{1,9})\.json")


class StoreError(UserError):
    """A Store that cannot be used: the message names the path."""


@dataclass
class Claim:
    """The right to run one trial, until a higher generation exists."""

    store: Store
    trial_id: str
    generation: int
    token: str
    beats: int = 0
    released: bool = False

    @property
    def path(self) -> str:
        """The claim's file in the Store."""
        return f"trials/{self.trial_id}/claim-{self.generation}.json"

    def content(self) -> bytes:
        """What the file says: who, since when, how alive."""
        return _json(
            {
                "token": self.token,
                "beats": self.beats,
                "released": self.released,
                "process": vars(Process.this()),
                "time": time.time(),
            }
        )

    def is_held(self) -> bool:
        """True while nobody has taken over."""
        return self.store.generation(self.trial_id) == self.generation

    def beat(self) -> None:
        """Show that the holder is alive."""
        self.beats += 1
        if not self.released and self.is_held():
            self.store.write(self.path, self.content())

    def release(self) -> None:
        """Let go; the next claim needs no waiting."""
        self.released = True
        if self.is_held():
            self.store.write(self.path, self.content())


@dataclass
class Store:
    """The Store at `root`, a local path. Nothing is created before the first write."""

    root: str
    _seen: dict[str, tuple[Any, float]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        try:
            self._fs, path = fsspec.core.url_to_fs(self.root)
        except Exception as error:  # each file system of fsspec has its own
            raise StoreError(f"store {self.root!r}: {error}") from None
        if "file" not in self._fs.protocol:
            raise StoreError(f"store {self.root!r}: only local paths are supported yet")
        if not self.root or "::" in self.root:
            raise StoreError(f"store {self.root!r}: expected the path of a folder")
        self._base = Path(path)
        self.root = str(self._base.absolute())  # a worker has another working directory, and no ~

    @property
    def wandb_folder(self) -> Path:
        """Where the offline runs of `wandb` lie."""
        return self._base / "wandb"

    def check_writable(self) -> None:
        """Raise `StoreError` where nothing can be written."""
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            self.write(probe, b"")
            self._fs.rm_file(self._path(probe))
        except OSError as error:
            raise StoreError(f"store {self.root!r} cannot be written: {error}") from None

    # files

    def read(self, path: str) -> bytes | None:
        """A file's content, None where there is no such file."""
        try:
            content: bytes = self._fs.cat_file(self._path(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self._path(path)}: cannot be read: {error.strerror or error}") from None
        return content

    def write(self, path: str, content: bytes, *, keep_as: str | None = None) -> None:
        """Replace a file: temporary file beside it, fsync, rename, fsync of the folder.

        What it replaces stays under the name `keep_as`, where that is given; at no moment is `path` absent.
        """

        def place(temporary: Path, target: Path) -> None:
            if keep_as is not None and target.exists():
                link = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
                os.link(target, link)
                link.replace(self._path(keep_as))
            temporary.replace(target)

        self._put(path, content, place)

    def create(self, path: str, content: bytes) -> bool:
        """Create a file, with its content at once; False where it exists.

        By a hard link to a temporary file: fsspec's own `mode="create"` looks first and writes then, so that of two
        processes both can win.
        """
        try:
            self._put(path, content, os.link)
        except FileExistsError:
            return False
        return True

    def _put(self, path: str, content: bytes, place: Callable[[Path, Path], None]) -> None:
        target = Path(self._path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            place(temporary, target)
        finally:
            with suppress(OSError):
                temporary.unlink()
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        return bool(self._fs.exists(self._path(path)))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
        try:
            entries = self._fs.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"{self._path(folder)}: cannot be listed: {error.strerror or error}") from None
        return sorted(entry.rsplit("/", 1)[-1] for entry in entries)

    def remove(self, path: str) -> None:
        """Remove a file that may be absent."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(path))

    def _path(self, path: str) -> str:
        return str(self._base / path)

    def _json(self, path: str) -> Any:
        content = self.read(path)
        if content is None:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise StoreError(f"{self._path(path)}: damaged, not JSON: {error}") from None

    # trials

    def record(self, trial_id: str) -> dict[str, Any] | None:
        """The trial's record, None where it never started."""
        record: dict[str, Any] | None = self._json(f"trials/{trial_id}/record.json")
        path = self._path(f"trials/{trial_id}/record.json")
        if record is None:
            if self.exists(f"trials/{trial_id}/record.json"):
                raise StoreError(f"{path}: damaged, it is empty")
            return None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            found = record.get("format") if isinstance(record, dict) else type(record).__name__
            raise StoreError(f"{path}: format {found!r}, this version reads {FORMAT}")
        outcome, width, epoch = record.get("outcome"), record.get("width"), record.get("epoch")
        counts = isinstance(width, int) and width >= 1 and isinstance(epoch, int) and epoch >= 0
        if outcome not in ("running", *FINAL) or not counts:
            raise StoreError(f"{path}: damaged: outcome {outcome!r}, width {width!r}, epoch {epoch!r}")
        if record.get("trial_id", trial_id) != trial_id:
            raise StoreError(f"{path}: damaged: it says that it is of the trial {record['trial_id']!r}")
        for key, kind in (("notes", list), ("sessions", list), ("provenance", dict)):
            if not isinstance(record.get(key, kind()), kind):
                raise StoreError(f"{path}: damaged: {key} is {record[key]!r}")
        return record

    def write_record(self, trial_id: str, record: Mapping[str, Any]) -> None:
        """Replace the record."""
        self.write(f"trials/{trial_id}/record.json", _json({"format": FORMAT, **record}))

    def write_config(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Keep the canonical config."""
        self.write(f"trials/{trial_id}/config.json", _json(config))

    def config(self, trial_id: str) -> dict[str, Any] | None:
        """The canonical config."""
        config: dict[str, Any] | None = self._json(f"trials/{trial_id}/config.json")
        return config

    def history(self, trial_id: str) -> list[dict[str, Any]]:
        """One row per epoch; empty where there is none yet."""
        content = self.read(f"trials/{trial_id}/history.parquet")
        if content is None:
            return []
        try:
            rows: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
        except pa.ArrowException as error:
            raise StoreError(f"{self._path(f'trials/{trial_id}/history.parquet')}: damaged: {error}") from None
        missing = [name for name in HISTORY_COLUMNS if rows and name not in rows[0]]
        if missing:
            path = self._path(f"trials/{trial_id}/history.parquet")
            raise StoreError(f"{path}: damaged: no column {', '.join(missing)}")
        return rows

    def write_history(self, trial_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the history."""
        buffer = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(list(rows), schema=_schema(rows)), buffer)
        self.write(f"trials/{trial_id}/history.parquet", buffer.getvalue())

    def state(self, trial_id: str) -> TrialState:
        """What a plan needs to know. The claim is looked at first: one that is newer is never taken for it."""
        generation = self.generation(trial_id)
        holder = self.holder(trial_id, generation)
        record = self.record(trial_id) or {"outcome": "new", "width": None, "epoch": 0}
        outcome, width, epoch = record["outcome"], record["width"], record["epoch"]
        if outcome in FINAL:
            return TrialState(outcome, width, epoch, generation=generation)
        if holder is not None:
            return TrialState("running", width, epoch, str(holder), generation, not holder.is_local())
        return TrialState("new" if outcome == "new" else "interrupted", width, epoch, generation=generation)

    def states(self, spec: SweepSpec) -> dict[str, TrialState]:
        """By id, the state of every trial of a sweep."""
        return {trial.trial_id: self.state(trial.trial_id) for trial in spec.trials}

    # claims

    def generation(self, trial_id: str) -> int:
        """The highest claim, 0 where there is none."""
        found = (_CLAIM.fullmatch(name) for name in self.names(f"trials/{trial_id}"))
        return max((int(match[1]) for match in found if match), default=0)

    def holder(self, trial_id: str, generation: int | None = None) -> Process | None:
        """Who runs the trial now (by the highest claim, or by `generation`); None where nobody does or it is stale.

        Stale: its process is known to be dead, or its heartbeat has not changed for 60 s of this observer's clock.
        """
        generation = self.generation(trial_id) if generation is None else generation
        if not generation:
            return None
        path = f"trials/{trial_id}/claim-{generation}.json"
        content = self.read(path) or b""
        beat, first_seen = self._seen.get(path, (None, 0.0))
        if beat != content:
            first_seen = time.monotonic()
            self._seen[path] = (content, first_seen)
        stale = time.monotonic() - first_seen > STALE_SECONDS
        try:
            claim = json.loads(content)
            process, released = Process(**claim["process"]), bool(claim["released"])
        except (ValueError, KeyError, TypeError):
            process, released = Process("an unknown host", "", "", 0, 0), False
        return None if released or process.is_dead() or stale else process

    def claim(self, trial_id: str, *, over: int = 0) -> Claim | None:
        """Claim the trial; None where another process holds it or was faster.

        `over` is a generation that the caller has seen go stale.
        """
        generation = self.generation(trial_id)
        if generation != over and self.holder(trial_id) is not None:
            return None
        claim = Claim(self, trial_id, generation + 1, uuid.uuid4().hex)
        return claim if self.create(claim.path, claim.content()) else None

    # sweeps

    def write_sweep(self, name: str, spec: str, trials: Sequence[Mapping[str, Any]]) -> None:
        """Keep a sweep's spec as launched and the list of its trials."""
        self.write(f"sweeps/{name}/spec.yaml", spec.encode())
        self.write(f"sweeps/{name}/trials.json", _json({"format": FORMAT, "trials": list(trials)}))

    def sweep_spec(self, name: str) -> str:
        """The spec as launched.

        Raises `StoreError` with the sweeps that there are where this one is unknown.
        """
        content = self.read(f"sweeps/{name}/spec.yaml") if NAME_PATTERN.fullmatch(name) else None
        if content is None:
            known = ", ".join(self.sweeps()) or "none"
            raise StoreError(f"no sweep {name!r} in the store {self.root!r}; it has: {known}")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{self._path(f'sweeps/{name}/spec.yaml')}: damaged: {error}") from None

    def sweeps(self) -> list[str]:
        """The names of the sweeps."""
        return [name for name in self.names("sweeps") if self.exists(f"sweeps/{name}/spec.yaml")]

    def sweeps_of(self, trial_ids: set[str]) -> dict[str, list[str]]:
        """By trial id, the sweeps that contain it."""
        found: dict[str, list[str]] = {trial_id: [] for trial_id in trial_ids}
        for name in self.sweeps():
            listed = self._json(f"sweeps/{name}/trials.json")
            try:
                members = {trial["trial_id"] for trial in listed["trials"]}
            except (KeyError, TypeError):
                raise StoreError(f"{self._path(f'sweeps/{name}/trials.json')}: damaged: no list of trials") from None
            for trial_id in members & trial_ids:
                found[trial_id].append(name)
        return found

    def stop_file(self, sweep: str, launch: str) -> str:
        """The file whose existence tells the workers of one launch to stop."""
        return f"sweeps/{sweep}/stop-{launch}"


def _schema(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Counts as int64, marks as bool, all else float64: the same columns in every trial."""
    kinds = {"epoch": pa.int64(), "step": pa.int64(), "partial": pa.bool_()}
    names: Iterator[str] = iter(rows[0]) if rows else iter(())
    return pa.schema([(name, kinds.get(name, pa.float64())) for name in names])


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
