"""What was measured of trained trials besides their histories, each once for given settings.

trials/<trial_id>/probes/<key>.json (its columns, and the epoch of the checkpoint that was measured)
sweeps/<name>/probes/<kind>.json    (the settings that the sweep's tables show)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from polysweep.sweeps.store.checking import json_bytes, parse_content, require_known_format
from polysweep.sweeps.store.files import Files, NewerFormatError, StoreError
from polysweep.trainer.probe.settings import KINDS, Measurement

PROBE_FORMAT: Final = 1


class Probe(TypedDict):
    """A measurement of one trial; a value that is not defined is None."""

    format: int
    epoch: Annotated[int, Field(ge=0)]  # of the checkpoint
    trained: Annotated[int, Field(ge=0)]  # epochs of the trial then: a stopped one may continue
    columns: dict[str, float | None]
    seconds: Annotated[float, Field(ge=0)]  # of its stack, divided by the trials in it
    provenance: dict[str, Any]


_PROBE: Final = TypeAdapter(Probe)


@dataclass
class ProbeFiles:
    """The measurements in a Store."""

    files: Files

    def read(self, trial_ids: Iterable[str], key: str) -> tuple[dict[str, Probe], list[str]]:
        """By trial its measurement with the settings of `key`; and what is wrong with those that are damaged.

        Raises `NewerFormatError` for one of a newer version.
        """
        paths = {_path(trial_id, key): trial_id for trial_id in trial_ids}
        probes, damage = {}, []
        for path, content in self.files.read_many(paths).items():
            try:
                value = parse_content(content, self.files.path(path))
                if value is not None:
                    probes[paths[path]] = self._checked(path, value)
            except NewerFormatError:
                raise
            except StoreError as error:
                damage.append(str(error))
        return probes, damage

    def _checked(self, path: str, value: Any) -> Probe:
        address = self.files.path(path)
        require_known_format(value, address, PROBE_FORMAT)
        try:
            return _PROBE.validate_python(value)
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"]))
            raise StoreError(f"{address}: damaged: {place}: {error.errors()[0]['msg']}") from None

    def write(self, trial_id: str, key: str, probe: Mapping[str, Any]) -> None:
        """Keep a measurement."""
        self.files.write(_path(trial_id, key), json_bytes({"format": PROBE_FORMAT, **probe}))

    def settings(self, name: str) -> list[Measurement]:
        """With which settings a sweep was measured last, for each kind. Raises `StoreError` for a damaged file."""
        kept: list[Measurement] = []
        for kind, model in KINDS.items():
            path = f"sweeps/{name}/probes/{kind}.json"
            address = self.files.path(path)
            value = parse_content(self.files.read(path), address)
            if value is None:
                continue
            require_known_format(value, address, PROBE_FORMAT)
            try:
                kept.append(model.model_validate_json(json_bytes(value.get("settings"))))
            except ValidationError as error:
                place = ".".join(map(str, ("settings", *error.errors()[0]["loc"])))
                raise StoreError(f"{address}: damaged: {place}: {error.errors()[0]['msg']}") from None
        return kept

    def keep_settings(self, name: str, settings: Measurement) -> None:
        """From now on the sweep's tables show what was measured with these."""
        content = json_bytes({"format": PROBE_FORMAT, "settings": settings.model_dump(mode="json")})
        self.files.write(f"sweeps/{name}/probes/{settings.kind}.json", content)


def _path(trial_id: str, key: str) -> str:
    return f"trials/{trial_id}/probes/{key}.json"
