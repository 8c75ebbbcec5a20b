"""Durable trial records: one folder of small files, the truth about every trial.

trials/<trial_id>/config.json, record.json, history.parquet, checkpoint.pt, checkpoint-before.pt, claim-<n>.json
leases/<id>.json, calibration/<device>/<signature>.json (how fast stacks are there, by K)
sweeps/<name>/sweep.json, sweep-<n>.json (what it is, and its trials: see `sweep_index`),
              spec.yaml, spec-<n>.yaml (as launched, and earlier ones), preregistered.json (its claims),
              points/<n>.json (what bayes has proposed),
              rungs/<trial_id>-<epoch>.json (whether a point survives there), ended/<trial_id>.json (it does not),
              choices/<cell>.json, looks/<number>.json (what results have decided),
              launch-<id>.json (who is running it), stop-<id> (who is to stop); of both, probes/: see `probes`
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from polysweep.sweeps.spec.sweep import HasTrials, Sweep
from polysweep.sweeps.store.calibrations import Calibrations
from polysweep.sweeps.store.checking import FORMAT, checked_record, json_bytes, parse_content
from polysweep.sweeps.store.claims import Claim, Claims, Lease, Owner
from polysweep.sweeps.store.files import Fence, Files, NewerFormatError, OutOfReachError, StoreError, UnreadableError
from polysweep.sweeps.store.history_file import history_bytes, history_table
from polysweep.sweeps.store.local_files import LocalFiles, check_mounted, users_apart
from polysweep.sweeps.store.opening import open_files
from polysweep.sweeps.store.search_state import SearchState
from polysweep.sweeps.store.states import FINAL, State, TrialState
from polysweep.sweeps.store.sweep_records import SweepRecords, planned

if TYPE_CHECKING:
    from polysweep.sweeps.spec.spec import SweepSpec

_NEW: Final = TrialState()
_SETTLED: Final = (State.FINISHED, State.DIVERGED)
"""A trial that has ended so is never run again; a failed or stopped one may be."""
_BATCH: Final = 1000


@dataclass
class Store:
    """The Store at `root`: a path, or an address such as `s3://bucket/folder`. Nothing is created until it is written.

    `patience` is how many seconds a call is repeated while the Store is unreachable.
    """

    root: str
    patience: float = 0.0
    files: Files = field(init=False, repr=False)
    claims: Claims = field(init=False, repr=False)
    sweep_records: SweepRecords = field(init=False, repr=False)
    search: SearchState = field(init=False, repr=False)
    calibrations: Calibrations = field(init=False, repr=False)
    _folders: set[str] = field(default_factory=set, init=False, repr=False)  # trials that are known to have one

    def __post_init__(self) -> None:
        self.files = open_files(self.root)
        self.files.patience = self.patience
        self.claims = Claims(self.files)
        self.sweep_records = SweepRecords(self.files)
        self.search = SearchState(self.files)
        self.calibrations = Calibrations(self.files)
        self.root = self.files.root

    @property
    def wandb_folder(self) -> Path:
        """Where offline runs of W&B are stored: in a local Store itself, else in a spool folder here."""
        return Path(self.root) / "wandb" if isinstance(self.files, LocalFiles) else Path("polysweep-wandb").absolute()

    @property
    def is_local(self) -> bool:
        """Whether it is a path."""
        return isinstance(self.files, LocalFiles)

    def check_writable(self) -> None:
        """Raise `StoreError` if nothing can be written, or if it would be lost with the container."""
        if self.is_local:
            check_mounted(self.root)
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            self.files.write(probe, b"")
            self.files.remove(probe)
        except StoreError as error:
            users = users_apart(self.root) if self.is_local else ""
            raise StoreError(f"store {self.root!r} cannot be written: {error}{users}") from None

    def remove_leftovers(self, sweep: str, ended: Iterable[str] = ()) -> None:
        """Remove what killed processes have left and no living one can need: leases, temporary files, fences.

        `ended` are trials that nobody runs: their fences are removed too.
        """
        self.claims.remove_dead()
        folders = (f"sweeps/{sweep}{below}" for below in ("", "/points", "/rungs", "/ended", "/choices", "/looks"))
        for folder in (".", "leases", *folders):
            self.files.remove_leftovers(folder)
        for trial_id in ended:
            self.files.remove_leftovers(f"trials/{trial_id}", fences=True)

    # trials

    def record(self, trial_id: str) -> dict[str, Any] | None:
        """The trial's record, None if it never started."""
        return self._checked(trial_id, self.files.read(f"trials/{trial_id}/record.json"))

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
        address = self.files.path(f"trials/{trial_id}/record.json")
        record = parse_content(content, address)
        return None if record is None else checked_record(record, trial_id, address)

    def write_record(self, trial_id: str, record: Mapping[str, Any], fence: Fence | None = None) -> None:
        """Replace the record; `fence` as in `Files.write`."""
        content = json_bytes({**record, "format": FORMAT})
        self.files.write(f"trials/{trial_id}/record.json", content, fence=fence)

    def write_config(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Keep the canonical config."""
        self.files.write(f"trials/{trial_id}/config.json", json_bytes(config))

    def config(self, trial_id: str) -> dict[str, Any] | None:
        """The canonical config."""
        path = f"trials/{trial_id}/config.json"
        config: dict[str, Any] | None = parse_content(self.files.read(path), self.files.path(path))
        return config

    def history(self, trial_id: str) -> list[dict[str, Any]]:
        """One row per epoch; empty before the first."""
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

    def write_history(self, trial_id: str, rows: Sequence[Mapping[str, Any]], fence: Fence | None = None) -> None:
        """Replace the history; `fence` as in `Files.write`. It names the claim's generation, as the checkpoint does."""
        content = history_bytes(rows, fence.generation if fence else 0)
        self.files.write(f"trials/{trial_id}/history.parquet", content, fence=fence)

    def state(self, trial_id: str) -> TrialState:
        """What a plan needs to know. The claim is looked at first: one that is newer is never taken for it."""
        generation = 0
        try:
            generation = self.claims.generation(trial_id)
            owner = self.claims.owner(trial_id, generation)
        except UnreadableError as error:
            return TrialState(State.FAILED, generation=generation, damage=str(error))
        try:
            record = self.record(trial_id)
        except (NewerFormatError, OutOfReachError):  # neither is this trial's damage
            raise
        except StoreError as error:
            return TrialState(State.FAILED, generation=generation, damage=str(error))
        return _state(record, generation, owner)

    def states(
        self,
        sweep: HasTrials,
        ended: Mapping[str, TrialState] = MappingProxyType({}),
        records: dict[str, Mapping[str, Any]] | None = None,
    ) -> dict[str, TrialState]:
        """By id, the state of every trial of a sweep: one listing, and the records of those that have one.

        `ended` are trials that have ended: they are not read again. `records` receives what was read; those in it of
        trials that have finished or diverged are not read again.
        """
        trial_ids = [trial.trial_id for trial in sweep.trials]
        read = self._read_states([i for i in trial_ids if i not in ended], {} if records is None else records)
        states = {trial_id: ended.get(trial_id) or read.get(trial_id, _NEW) for trial_id in trial_ids}
        return self._as_seen_by(sweep.name, states)

    def _read_states(self, trial_ids: Sequence[str], records: dict[str, Mapping[str, Any]]) -> dict[str, TrialState]:
        """The states of those of the trials that have a folder."""
        settled = {i: records[i] for i in trial_ids if i in records and records[i]["outcome"] in _SETTLED}
        folders = self._present(trial_ids)
        present = [trial_id for trial_id in trial_ids if trial_id in folders and trial_id not in settled]
        read = {i: record for i, record in self.records(present) if not isinstance(record, StoreError)}
        records |= read
        open_ = {i: record for i, record in read.items() if record["outcome"] not in FINAL}
        claims = {i: record["claim"] for i, record in open_.items() if isinstance(record.get("claim"), int)}
        owners = self.claims.owners(claims)
        states = {trial_id: _state(record, 0, None) for trial_id, record in settled.items()}
        for trial_id in present:
            record = read.get(trial_id)
            if record is not None and (record["outcome"] in FINAL or trial_id in owners):
                states[trial_id] = _state(record, claims.get(trial_id, 0), owners.get(trial_id))
            else:  # damaged, not begun, or not run under the claim that its record names: look closer
                states[trial_id] = self.state(trial_id)
        return states

    def _as_seen_by(self, sweep: str, states: Mapping[str, TrialState]) -> dict[str, TrialState]:
        """Whether a trial was stopped early is a sweep's own decision.

        Another sweep that contains it continues it; for the one that stopped it, it stays stopped.
        """
        seen, stopped = dict(states), self.search.all_ended_early(sweep)
        for trial_id, state in states.items():
            if state.state == State.STOPPED and trial_id not in stopped:
                seen[trial_id] = replace(state, state=State.INTERRUPTED, generation=self.claims.generation(trial_id))
            elif state.state == State.FINISHED and trial_id in stopped:
                seen[trial_id] = replace(state, state=State.STOPPED)
        return seen

    def _present(self, trial_ids: Sequence[str]) -> set[str]:
        """Those of the trials that have a folder. Folders are never removed, so each is looked up until it is there."""
        if not self._folders.issuperset(trial_ids):
            self._folders |= set(self.files.names("trials")).intersection(trial_ids)
        return self._folders.intersection(trial_ids)

    # claims

    def claim(self, trial_id: str, lease: Lease | None = None, *, supersedes: int = 0) -> Claim | None:
        """`Claims.claim`, by default under a lease of its own without a heartbeat."""
        return self.claims.claim(trial_id, lease or self.claims.lease(), supersedes=supersedes)

    def owner(self, trial_id: str) -> Owner | None:
        """Who runs the trial now."""
        return self.claims.owner(trial_id)

    # sweeps

    def write_sweep(self, spec: SweepSpec, widths: Mapping[str, int] = MappingProxyType({})) -> None:
        """Keep a sweep that is launched: its spec, what it is, and its trials; trials gone from it stay too.

        `widths` is the K that is planned, by signature.
        """
        self.sweep_records.extend(spec.name, spec.settings, planned(self.search.as_decided(spec).trials, widths))
        self.sweep_records.keep_spec(spec)

    def launched(self, name: str) -> Sweep:
        """A launched sweep. Raises `StoreError` with the names of all sweeps if it is unknown."""
        return self.sweep_records.read(name)

    def require_sweep(self, name: str) -> None:
        """Raise `StoreError` with the names of all sweeps if it is unknown."""
        self.sweep_records.require(name)

    def sweeps(self) -> list[str]:
        """The names of the sweeps."""
        return self.sweep_records.names()

    def sweeps_of(self, trial_ids: set[str]) -> dict[str, list[str]]:
        """By trial id, the sweeps that contain it."""
        return self.sweep_records.members(trial_ids)


def _state(record: Mapping[str, Any] | None, generation: int, owner: Owner | None) -> TrialState:
    outcome, width, epoch = State.NEW, None, 0
    if record is not None:
        outcome, width, epoch = State(record["outcome"]), record["width"], record["epoch"]
    if outcome in FINAL:
        return TrialState(outcome, width, epoch)
    if owner is not None:
        return TrialState(State.RUNNING, width, epoch, str(owner), generation, not owner.process.is_local())
    return TrialState(State.NEW if record is None else State.INTERRUPTED, width, epoch, generation=generation)
