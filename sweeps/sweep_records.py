"""The sweeps of a Store: their parts (`sweep_index`), read together, extended by exclusive creation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sweeps.checking import parse_json
from sweeps.files import Files, NewerFormatError, StoreError, UnreadableError
from sweeps.sweep_index import FORMAT, Settings, Sweep, SweepTrial, added, assembled

if TYPE_CHECKING:
    from sweeps.spec import SweepSpec

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
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
        """The files of a sweep; none if it is no folder."""
        try:
            return self.files.names(f"sweeps/{name}")
        except UnreadableError:
            return []

    def read(self, name: str) -> Sweep:
        """A launched sweep. One that an older version has launched is converted, once.

        Raises `StoreError` with the sweeps that there are if this one is unknown, or with the file that is damaged.
        """
        there = self.require(name)
        if "sweep.json" not in there:
            return self._convert(name)
        return self._assembled(name, self._parts(name, there))

    def require(self, name: str) -> list[str]:
        """The files of a sweep. Raises `StoreError` with the sweeps that there are if this one is unknown."""
        there = self.files.names(f"sweeps/{name}") if NAME_PATTERN.fullmatch(name) else []
        if set(_MARKS).isdisjoint(there):
            known = ", ".join(self.names()) or "none"
            raise StoreError(f"no sweep {name!r} in the store {self.files.root!r}; it has: {known}")
        return there

    def spec_text(self, name: str) -> str:
        """The spec as launched; empty if it is not there any more."""
        content = self.files.read(f"sweeps/{name}/spec.yaml") or b""
        return content.decode(errors="replace")

    def extend(self, name: str, settings: Settings, trials: Sequence[SweepTrial]) -> None:
        """Add what a launch has to what earlier ones have kept: never a state that another one has replaced since."""
        while True:
            parts, before = self._before(name)
            made = added(before, settings, trials)
            if made is None or self._create(name, parts, made):
                return

    def append(self, name: str, settings: Settings, trials: Sequence[SweepTrial]) -> None:
        """Add trials that a search has proposed; `settings` are those of a sweep that is not kept yet."""
        while True:
            parts, before = self._before(name)
            there = before.trials if before else []
            known = {trial.trial_id for trial in there}
            whole = [*there, *(trial for trial in trials if trial.trial_id not in known)]
            made = added(before, before.settings if before else settings, whole)
            if made is None or self._create(name, parts, made):
                return

    def _before(self, name: str) -> tuple[list[str], Sweep | None]:
        """The parts that there are, in their order, and what they say."""
        there = self.files.names(f"sweeps/{name}")
        if "sweep.json" not in there and not set(_MARKS).isdisjoint(there):
            self._convert(name)
            there = self.files.names(f"sweeps/{name}")
        if "sweep.json" not in there:
            return [], None
        parts = self._parts(name, there)
        return list(parts), self._assembled(name, parts)

    def _create(self, name: str, parts: Sequence[str], made: Mapping[str, Any]) -> bool:
        """False if another launch was faster."""
        number = 0 if not parts else 1 + int(_number(parts[-1]))
        path = f"sweeps/{name}/sweep{f'-{number:04d}' if number else ''}.json"
        return self.files.create(path, json.dumps(made, allow_nan=False).encode())

    def members(self, trial_ids: set[str]) -> dict[str, list[str]]:
        """By trial id, the sweeps that contain it."""
        found: dict[str, list[str]] = {trial_id: [] for trial_id in trial_ids}
        for name in self.names():
            there = self.files.names(f"sweeps/{name}")
            if "sweep.json" not in there:
                members = {trial.trial_id for trial in self.read(name).trials}
            else:
                paths = [f"sweeps/{name}/{one}" for one in there if _PART.fullmatch(one)]
                unread = [path for path in paths if path not in self._members]
                for path, content in self.files.read_many(unread).items():
                    self._members[path] = {str(one["trial_id"]) for one in _json(self.files, path, content)["trials"]}
                members = set().union(*(self._members[path] for path in paths))
            for trial_id in members & trial_ids:
                found[trial_id].append(name)
        return found

    def _parts(self, name: str, there: Sequence[str]) -> dict[str, Any]:
        """By file the parts of a sweep, in the order of their creation. One that is empty was never written."""
        files = sorted((one for one in there if _PART.fullmatch(one)), key=_number)
        contents = self.files.read_many([f"sweeps/{name}/{one}" for one in files])
        return {
            one: _json(self.files, path, content)
            for one, (path, content) in zip(files, contents.items(), strict=True)
            if content
        }

    def _assembled(self, name: str, parts: Mapping[str, Any]) -> Sweep:
        for one, content in parts.items():
            found = content.get("format") if isinstance(content, dict) else None
            if isinstance(found, int) and found > FORMAT:
                raise NewerFormatError(self.files.path(f"sweeps/{name}/{one}"), found, FORMAT)
        try:
            return assembled(name, list(parts.values()), self.spec_text(name))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            path = self.files.path(f"sweeps/{name}/{list(parts)[-1] if parts else 'sweep.json'}")
            raise StoreError(f"{path}: damaged: it is no list of trials ({type(error).__name__}: {error})") from None

    def _convert(self, name: str) -> Sweep:
        from sweeps.conversion import old_sweep

        sweep = old_sweep(self.files, name, self.spec_text(name))
        try:
            made = added(None, sweep.settings, [*sweep.trials, *sweep.gone])
            assert made is not None
            if sweep.gone:
                made["order"] = [trial.trial_id for trial in sweep.trials]
            self._create(name, [], made)
        except StoreError:
            pass  # it cannot be written, or another process was faster: what was read holds
        return sweep

    def keep_spec(self, spec: SweepSpec) -> None:
        """Keep the text of a spec that is launched; those launched before stay as spec-<n>.yaml."""
        folder = f"sweeps/{spec.name}"
        before = self.files.read(f"{folder}/spec.yaml")
        if before == spec.text.encode():
            return
        if before is not None:
            earlier = sum(name.startswith("spec-") for name in self.files.names(folder))
            self.files.write(f"{folder}/spec-{earlier + 1}.yaml", before)
        self.files.write(f"{folder}/spec.yaml", spec.text.encode())


def planned(trials: Sequence[SweepTrial], widths: Mapping[str, int]) -> list[SweepTrial]:
    """The trials with the K that is planned for each signature."""
    return [replace(trial, width=widths.get(trial.signature)) for trial in trials]


def _number(part: str) -> int:
    match = _PART.fullmatch(part)
    return int(match[1] or 0) if match else 0


def _json(files: Files, path: str, content: bytes | UnreadableError | None) -> Any:
    if isinstance(content, UnreadableError):
        raise content
    found = parse_json(content or b"null", files.path(path))
    if not isinstance(found, dict) or not isinstance(found.get("trials"), list):
        raise StoreError(f"{files.path(path)}: damaged: no list of trials")
    return found
