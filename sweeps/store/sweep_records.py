"""The sweeps of a Store: their parts (`sweep_index`), read together, extended by exclusive creation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from polysweep.sweeps.spec.sweep import NAME_PATTERN, Settings, Sweep, SweepTrial
from polysweep.sweeps.store.checking import checked_part, parse_content
from polysweep.sweeps.store.files import Files, NewerFormatError, OutOfReachError, StoreError, UnreadableError
from polysweep.sweeps.store.schemas import SweepPart
from polysweep.sweeps.store.sweep_index import added, assembled

if TYPE_CHECKING:
    from polysweep.sweeps.spec.spec import SweepSpec

_PART: Final = re.compile(r"sweep(?:-([0-9]{1,9}))?\.json")
_MARKS: Final = ("sweep.json", "spec.yaml", "trials.json")
"""One of these files makes a folder a sweep; the last two alone are of an older version."""


@dataclass
class SweepRecords:
    """The sweeps of a Store."""

    files: Files
    _members: dict[str, set[str]] = field(default_factory=dict, repr=False)  # by part, which never changes

    def names(self) -> list[str]:
        """The names of the sweeps."""
        names = [name for name in self.files.names("sweeps") if NAME_PATTERN.fullmatch(name)]
        return [name for name in names if not set(_MARKS).isdisjoint(self._files(name))]

    def _files(self, name: str) -> list[str]:
        """The files of a sweep; none if it is not a folder."""
        try:
            return self.files.names(f"sweeps/{name}")
        except UnreadableError:
            return []

    def read(self, name: str) -> Sweep:
        """A launched sweep. One that an older version has launched is converted, once.

        Raises `StoreError` with the names of all sweeps if this one is unknown, or with the file that is damaged.
        """
        there = self.require(name)
        if "sweep.json" not in there:
            return self._convert(name, there)
        parts = self._parts(name, there)
        if not parts:
            raise StoreError(
                f"{self.files.path(f'sweeps/{name}/sweep.json')}: empty: its writer was killed; launch again"
            )
        return self._assembled(name, parts)

    def require(self, name: str) -> list[str]:
        """The files of a sweep. Raises `StoreError` with the names of all sweeps if this one is unknown."""
        there = self.files.names(f"sweeps/{name}") if NAME_PATTERN.fullmatch(name) else []
        if set(_MARKS).isdisjoint(there):
            names = ", ".join(self.names()) or "none"
            raise StoreError(f"no sweep {name!r} in the store {self.files.root!r}; it has: {names}")
        return there

    def extend(self, name: str, settings: Settings, trials: Sequence[SweepTrial]) -> None:
        """Add what a launch has to what earlier ones have kept: never a state that another one has replaced since."""
        while True:
            number, before = self._before(name)
            new_part = added(before, settings, trials)
            if new_part is None or self._create(name, number, new_part):
                return

    def append(self, name: str, settings: Settings, trials: Sequence[SweepTrial]) -> None:
        """Add trials that a search has proposed; `settings` are those of a sweep that is not kept yet."""
        while True:
            number, before = self._before(name)
            present = before.trials if before else []
            present_ids = {trial.trial_id for trial in present}
            whole = [*present, *(trial for trial in trials if trial.trial_id not in present_ids)]
            new_part = added(before, before.settings if before else settings, whole)
            if new_part is None or self._create(name, number, new_part):
                return

    def _before(self, name: str) -> tuple[int, Sweep | None]:
        """The number of the next part, and the sweep that the present ones describe."""
        there = self.files.names(f"sweeps/{name}")
        if "sweep.json" not in there and not set(_MARKS).isdisjoint(there):
            self._convert(name, [])
            there = self.files.names(f"sweeps/{name}")
        numbers = [_number(one) for one in there if _PART.fullmatch(one)]
        parts = self._parts(name, there)
        return 1 + max(numbers, default=-1), self._assembled(name, parts) if parts else None

    def _create(self, name: str, number: int, content: Mapping[str, Any]) -> bool:
        """False if another launch was faster."""
        path = f"sweeps/{name}/sweep{f'-{number:04d}' if number else ''}.json"
        return self.files.create(path, json.dumps(content, allow_nan=False).encode())

    def members(self, trial_ids: set[str]) -> dict[str, list[str]]:
        """By trial id, the sweeps that contain it."""
        sweeps: dict[str, list[str]] = {trial_id: [] for trial_id in trial_ids}
        for name in self.names():
            try:
                members = self._members_of(name)
            except (OutOfReachError, NewerFormatError):
                raise
            except StoreError:  # a damaged sweep is reported when it is read itself
                continue
            for trial_id in members & trial_ids:
                sweeps[trial_id].append(name)
        return sweeps

    def _members_of(self, name: str) -> set[str]:
        there = self.files.names(f"sweeps/{name}")
        if "sweep.json" not in there:
            return {trial.trial_id for trial in self.read(name).trials}
        paths = [f"sweeps/{name}/{one}" for one in there if _PART.fullmatch(one)]
        unread = [path for path in paths if path not in self._members]
        for path, content in self.files.read_many(unread).items():
            if content:
                self._members[path] = {one["trial_id"] for one in _part(self.files, path, content)["trials"]}
        return set().union(*(self._members.get(path, ()) for path in paths))

    def _parts(self, name: str, there: Sequence[str]) -> dict[str, Any]:
        """By file the parts of a sweep, in the order of their creation. One that is empty was never written."""
        files = sorted((one for one in there if _PART.fullmatch(one)), key=_number)
        contents = self.files.read_many([f"sweeps/{name}/{one}" for one in files])
        return {
            one: _part(self.files, path, content)
            for one, (path, content) in zip(files, contents.items(), strict=True)
            if content
        }

    def _assembled(self, name: str, parts: Mapping[str, Any]) -> Sweep:
        try:
            return assembled(name, list(parts.values()))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            path = self.files.path(f"sweeps/{name}/{list(parts)[-1] if parts else 'sweep.json'}")
            raise StoreError(f"{path}: damaged: not a list of trials ({type(error).__name__}: {error})") from None

    def _convert(self, name: str, there: Sequence[str]) -> Sweep:
        """Read what an older version has launched, and keep it; not while a launch of that version may be running."""
        from polysweep.sweeps.store.conversion import old_sweep

        try:
            text = (self.files.read(f"sweeps/{name}/spec.yaml") or b"").decode(errors="replace")
        except UnreadableError:
            text = ""
        sweep = old_sweep(self.files, name, text)
        if any(one.startswith("launch-") for one in there):
            return sweep
        try:
            first_part = added(None, sweep.settings, [*sweep.trials, *sweep.gone])
            assert first_part is not None
            if sweep.gone:
                first_part["order"] = [trial.trial_id for trial in sweep.trials]
            self._create(name, 0, first_part)
        except StoreError:
            pass  # it cannot be written, or another process was faster: what was read holds
        return sweep

    def keep_spec(self, spec: SweepSpec) -> None:
        """Keep the text of a spec that is launched; those launched before stay as spec-<n>.yaml."""
        folder = f"sweeps/{spec.name}"
        before = self.files.read(f"{folder}/spec.yaml")
        if before == spec.text.encode():
            return
        number = 1
        while before and not self.files.create(f"{folder}/spec-{number}.yaml", before):
            number += 1
        self.files.write(f"{folder}/spec.yaml", spec.text.encode())


def planned(trials: Sequence[SweepTrial], widths: Mapping[str, int]) -> list[SweepTrial]:
    """The trials with the K that is planned for each signature."""
    return [replace(trial, width=widths.get(trial.signature)) for trial in trials]


def _number(part: str) -> int:
    match = _PART.fullmatch(part)
    return int(match[1] or 0) if match else 0


def _part(files: Files, path: str, content: bytes | UnreadableError | None) -> SweepPart:
    address = files.path(path)
    return checked_part(parse_content(content, address), address)
