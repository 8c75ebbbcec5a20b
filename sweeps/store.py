"""Durable trial records: one folder of small files, the truth about every trial.

trials/<trial_id>/config.json, record.json, history.parquet, checkpoint.pt, checkpoint-before.pt, claim-<n>.json
sweeps/<name>/spec.yaml, spec-<n>.yaml (earlier ones), trials.json,
              points/<n>.json (what bayes has proposed), ended/<trial_id>.json (what early termination has decided),
              rungs/<trial_id>-<epoch>.json (whether a point goes on there), ended/<trial_id>.json (it does not),
              launch-<id>.json (who is running it), stop-<id> (who is to stop)
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from sweeps.checking import (
    FORMAT,
    NewerFormatError,
    checked_point,
    checked_record,
    history_table,
    listed_trials,
    parse_json,
)
from sweeps.claims import Claim, Claims, Holder
from sweeps.expand import Point
from sweeps.files import Files, LocalFiles, StoreError, UnreadableError, open_files
from sweeps.plan import FINAL, TrialState
from sweeps.search import Suggestion
from sweeps.spec import NAME_PATTERN, SweepSpec

_NEW: Final = TrialState()
_BATCH: Final = 1000


@dataclass
class Store:
    """The Store at `root`: a path, or an address such as `s3://bucket/folder`. Nothing is created before it is written.

    `patience` is how many seconds a call is repeated while the Store is out of reach.
    """

    root: str
    patience: float = 0.0
    files: Files = field(init=False, repr=False)
    claims: Claims = field(init=False, repr=False)
    _members: dict[str, tuple[bytes | None, set[str]]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.files = open_files(self.root)
        self.files.patience = self.patience
        self.claims = Claims(self.files)
        self.root = self.files.root

    @property
    def wandb_folder(self) -> Path:
        """Where the offline runs of `wandb` lie: in a local Store itself, else in a spool folder here."""
        return Path(self.root) / "wandb" if isinstance(self.files, LocalFiles) else Path("polysweep-wandb").absolute()

    @property
    def is_local(self) -> bool:
        """Whether it is a path."""
        return isinstance(self.files, LocalFiles)

    def check_writable(self) -> None:
        """Raise `StoreError` where nothing can be written."""
        probe = f".probe-{Claim(self.claims, '', 0).token}"
        try:
            self.files.write(probe, b"")
            self.files.remove(probe)
        except StoreError as error:
            raise StoreError(f"store {self.root!r} cannot be written: {error}") from None

    def _json(self, path: str) -> Any:
        return self._parsed(path, self.files.read(path))

    def _parsed(self, path: str, content: bytes | UnreadableError | None) -> Any:
        if isinstance(content, UnreadableError):
            raise content
        return None if content is None else parse_json(content, self.files.path(path))

    # trials

    def record(self, trial_id: str) -> dict[str, Any] | None:
        """The trial's record, None where it never started."""
        path = f"trials/{trial_id}/record.json"
        return self._checked(trial_id, self.files.read(path))

    def records(self, trial_ids: Iterable[str]) -> Iterator[tuple[str, dict[str, Any] | StoreError]]:
        """The records of those that have one, and what is wrong with those that are damaged.

        Raises `NewerFormatError` for one that is not damaged but of a newer version.
        """
        asked = list(trial_ids)
        for start in range(0, len(asked), _BATCH):
            paths = {f"trials/{trial_id}/record.json": trial_id for trial_id in asked[start : start + _BATCH]}
            for path, content in self.files.read_many(paths).items():
                try:
                    record = self._checked(paths[path], content)
                except NewerFormatError:
                    raise
                except StoreError as error:
                    yield paths[path], error
                else:
                    if record is not None:
                        yield paths[path], record

    def _checked(self, trial_id: str, content: bytes | UnreadableError | None) -> dict[str, Any] | None:
        name = f"trials/{trial_id}/record.json"
        found = self._parsed(name, content)
        return None if found is None else checked_record(found, trial_id, self.files.path(name))

    def write_record(self, trial_id: str, record: Mapping[str, Any], still: Callable[[], bool] = lambda: True) -> None:
        """Replace the record; `still` as of `Files.write`."""
        self.files.write(f"trials/{trial_id}/record.json", _json({"format": FORMAT, **record}), still=still)

    def write_config(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Keep the canonical config."""
        self.files.write(f"trials/{trial_id}/config.json", _json(config))

    def config(self, trial_id: str) -> dict[str, Any] | None:
        """The canonical config."""
        config: dict[str, Any] | None = self._json(f"trials/{trial_id}/config.json")
        return config

    def history(self, trial_id: str) -> list[dict[str, Any]]:
        """One row per epoch; empty where there is none yet."""
        name = f"trials/{trial_id}/history.parquet"
        rows: list[dict[str, Any]] = self._table(name, self.files.read(name)).to_pylist()
        return rows

    def histories(self, trial_ids: Iterable[str]) -> Iterator[tuple[str, pa.Table | StoreError]]:
        """By trial its history as a table, or what is wrong with it, in as few round trips as there can be."""
        paths = {f"trials/{trial_id}/history.parquet": trial_id for trial_id in trial_ids}
        for path, content in self.files.read_many(paths).items():
            try:
                yield paths[path], self._table(path, content)
            except StoreError as error:
                yield paths[path], error

    def _table(self, name: str, content: bytes | UnreadableError | None) -> pa.Table:
        if isinstance(content, UnreadableError):
            raise content
        return history_table(content, self.files.path(name))

    def stamps(self, trial_ids: Iterable[str]) -> dict[str, str]:
        """By trial something that is another once its record or history has changed."""
        asked = list(trial_ids)
        paths = [f"trials/{trial_id}/{name}" for trial_id in asked for name in ("record.json", "history.parquet")]
        seen = self.files.stamps(paths)
        return {
            trial_id: f"{seen[record]} {seen.get(history, '')}"
            for trial_id, record, history in zip(asked, paths[::2], paths[1::2], strict=True)
            if record in seen
        }

    def write_history(
        self, trial_id: str, rows: Sequence[Mapping[str, Any]], still: Callable[[], bool] = lambda: True
    ) -> None:
        """Replace the history; `still` as of `Files.write`."""
        buffer = io.BytesIO()
        table = pa.Table.from_pylist(list(rows), schema=_schema(rows))
        parquet.write_table(table, buffer, write_page_checksum=True)  # a flipped bit is found, not drawn
        self.files.write(f"trials/{trial_id}/history.parquet", buffer.getvalue(), still=still)

    def state(self, trial_id: str) -> TrialState:
        """What a plan needs to know. The claim is looked at first: one that is newer is never taken for it."""
        generation = 0
        try:
            generation = self.claims.generation(trial_id)
            holder = self.claims.holder(trial_id, generation)
        except UnreadableError as error:
            return TrialState("failed", generation=generation, damage=str(error))
        try:
            record = self.record(trial_id)
        except NewerFormatError:
            raise
        except StoreError as error:
            return TrialState("failed", generation=generation, damage=str(error))
        found = record or {"outcome": "new", "width": None, "epoch": 0}
        outcome, width, epoch = found["outcome"], found["width"], found["epoch"]
        if outcome in FINAL:
            return TrialState(outcome, width, epoch)
        if holder is not None:
            return TrialState("running", width, epoch, str(holder), generation, not holder.process.is_local())
        return TrialState("new" if outcome == "new" else "interrupted", width, epoch, generation=generation)

    def states(
        self,
        spec: SweepSpec,
        known: Mapping[str, TrialState] = MappingProxyType({}),
        records: dict[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, TrialState]:
        """By id, the state of every trial of a sweep: one listing, and a record of each trial that is there.

        `known` are those that have ended and are not looked at again; `records` receives what was read.

        Whether a trial was stopped early is a sweep's own decision: another sweep that contains it goes on with it, and
        for the one that stopped it it stays stopped.
        """
        present = set(self.files.names("trials"))
        found = {trial.trial_id: _NEW for trial in spec.trials}
        found |= known
        there = [trial_id for trial_id in found if trial_id in present and trial_id not in known]
        ended: set[str] = set()
        for trial_id, record in self.records(there):
            if isinstance(record, StoreError):
                continue
            if records is not None:
                records[trial_id] = record
            if record["outcome"] in FINAL:
                found[trial_id] = TrialState(record["outcome"], record["width"], record["epoch"])
                ended.add(trial_id)
        found |= {trial_id: self.state(trial_id) for trial_id in there if trial_id not in ended}
        stopped = self.all_ended_early(spec.name)
        for trial_id, state in found.items():
            if state.state == "stopped" and trial_id not in stopped:
                found[trial_id] = replace(state, state="interrupted", generation=self.claims.generation(trial_id))
            elif state.state == "finished" and trial_id in stopped:
                found[trial_id] = replace(state, state="stopped")
        return found

    # claims

    def claim(self, trial_id: str, *, over: int = 0, launch: str = "") -> Claim | None:
        """`Claims.claim`."""
        return self.claims.claim(trial_id, over=over, launch=launch)

    def holder(self, trial_id: str) -> Holder | None:
        """Who runs the trial now."""
        return self.claims.holder(trial_id)

    # sweeps

    def write_sweep(self, spec: SweepSpec) -> None:
        """Keep a sweep's spec and the list of its trials; an earlier spec stays, and trials gone from it too."""
        folder = f"sweeps/{spec.name}"
        spec = self.known(spec)  # another launch may have made proposals
        before = self.files.read(f"{folder}/spec.yaml")
        listed = self.listed(spec.name)
        trials: list[dict[str, Any]] = [{"trial_id": trial.trial_id, "cell": trial.cell} for trial in spec.trials]
        now = {trial["trial_id"] for trial in trials}
        trials += [{**trial, "gone": True} for trial in listed if trial["trial_id"] not in now]
        if trials != listed:
            content = json.dumps({"format": FORMAT, "trials": trials}, allow_nan=False).encode()
            self.files.write(f"{folder}/trials.json", content)
        if before != spec.text.encode():
            if before is not None:
                self.files.write(f"{folder}/spec-{self._specs(spec.name) + 1}.yaml", before)
            self.files.write(f"{folder}/spec.yaml", spec.text.encode())

    def _specs(self, name: str) -> int:
        return sum(found.startswith("spec-") for found in self.files.names(f"sweeps/{name}"))

    def listed(self, name: str) -> list[dict[str, Any]]:
        """The trials of a sweep as it was last launched, those that have gone from its file marked; none if unknown."""
        path = f"sweeps/{name}/trials.json"
        found = self._json(path)
        return [] if found is None else listed_trials(found, self.files.path(path))

    def sweep_spec(self, name: str) -> str:
        """The spec as launched.

        Raises `StoreError` with the sweeps that there are where this one is unknown.
        """
        content = self.files.read(f"sweeps/{name}/spec.yaml") if NAME_PATTERN.fullmatch(name) else None
        if content is None:
            known = ", ".join(self.sweeps()) or "none"
            raise StoreError(f"no sweep {name!r} in the store {self.root!r}; it has: {known}")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.files.path(f'sweeps/{name}/spec.yaml')}: damaged: {error}") from None

    def launched(self, name: str) -> SweepSpec:
        """The sweep as launched, with the points that are known of it."""
        return self.known(SweepSpec.parse(self.sweep_spec(name), f"sweep {name}", name, recorded=True))

    def known(self, spec: SweepSpec) -> SweepSpec:
        """The sweep with the points that have been proposed for it, where it is a bayes one."""
        if spec.method != "bayes":
            return spec
        suggestions = self.suggestions(spec.name)
        if any(suggestion.point.variant >= len(spec.variants) for suggestion in suggestions):
            path = self.files.path(f"sweeps/{spec.name}/points")
            raise StoreError(f"{path}: damaged: a point of a variant that the spec does not have")
        return spec.with_suggestions(suggestions)

    def sweeps(self) -> list[str]:
        """The names of the sweeps."""
        return [name for name in self.files.names("sweeps") if self.files.exists(f"sweeps/{name}/spec.yaml")]

    def sweeps_of(self, trial_ids: set[str]) -> dict[str, list[str]]:
        """By trial id, the sweeps that contain it."""
        found: dict[str, list[str]] = {trial_id: [] for trial_id in trial_ids}
        for name in self.sweeps():
            content = self.files.read(f"sweeps/{name}/trials.json")
            if self._members.get(name, (None, set()))[0] != content:
                self._members[name] = (content, {trial["trial_id"] for trial in self.listed(name)})
            for trial_id in self._members[name][1] & trial_ids:
                found[trial_id].append(name)
        return found

    # decisions of a search

    def suggestions(self, name: str) -> list[Suggestion]:
        """What bayes has proposed, in order."""
        folder = f"sweeps/{name}/points"
        paths = [f"{folder}/{found}" for found in self.files.names(folder) if found.endswith(".json")]
        made = []
        for path, content in self.files.read_many(paths).items():
            said = checked_point(self._parsed(path, content), self.files.path(path))
            made.append(Suggestion(Point(said["point"]["variant"], said["point"]["values"]), said["raw"]))
        return made

    def add_suggestion(self, name: str, suggestion: Suggestion, known: int) -> bool:
        """Keep a proposal before it is tried; False where another launch has added one to the `known` ones."""
        there = [found for found in self.files.names(f"sweeps/{name}/points") if found.endswith(".json")]
        if len(there) != known:
            return False
        index = int(there[-1].removesuffix(".json")) + 1 if there else 0
        token = uuid.uuid4().hex  # two launches may propose the same: it tells whose file it is
        said = {"point": suggestion.point._asdict(), "raw": dict(suggestion.raw), "token": token}
        return self.files.create(f"sweeps/{name}/points/{index:06d}.json", _json(said))

    def decide(self, name: str, trials: Sequence[str], rung: int, goes_on: bool, why: Mapping[str, Any]) -> bool:
        """Keep once and for all whether a point goes on at a rung; returns what holds, this or an earlier decision.

        A point is named by its first seed; where it stops, each of its trials is marked afterwards.
        """
        path = f"sweeps/{name}/rungs/{trials[0]}-{rung}.json"
        said = {"goes_on": goes_on, **why, "token": uuid.uuid4().hex}
        if not self.files.create(path, _json(said)):
            found = self._json(path)
            goes_on = bool(found.get("goes_on", True)) if isinstance(found, dict) else True
        if not goes_on:
            for trial_id in trials:
                self.files.write(f"sweeps/{name}/ended/{trial_id}.json", _json(why))
        return goes_on

    def ended_early(self, name: str, trial_id: str) -> bool:
        """Whether it has been decided that a trial stops."""
        return self.files.exists(f"sweeps/{name}/ended/{trial_id}.json")

    def all_ended_early(self, name: str) -> set[str]:
        """The trials of which that has been decided."""
        return {found.removesuffix(".json") for found in self.files.names(f"sweeps/{name}/ended")}

    def mark_exhausted(self, name: str) -> None:
        """Keep that bayes has found no further point."""
        self.files.write(f"sweeps/{name}/exhausted", b"")

    def is_exhausted(self, name: str) -> bool:
        """Whether that is so."""
        return self.files.exists(f"sweeps/{name}/exhausted")


def _schema(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Counts as int64, marks as bool, all else float64: the same columns in every trial."""
    kinds = {"epoch": pa.int64(), "step": pa.int64(), "partial": pa.bool_()}
    names: Iterator[str] = iter(rows[0]) if rows else iter(())
    return pa.schema([(name, kinds.get(name, pa.float64())) for name in names])


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
