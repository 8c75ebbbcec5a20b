"""Untrusted bytes to checked values: the JSON files of a Store, whatever has happened to them.

Pure functions: they read no file. What is damaged raises `StoreError` with the path, the place and the reason; what a
newer version of polysweep has written raises `NewerFormatError`, because it is not damaged and must not be replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from polysweep.sweeps.store.files import NewerFormatError, StoreError, UnreadableError
from polysweep.sweeps.store.schemas import (
    Beat,
    CalibrationFields,
    ClaimFields,
    ListOfTrials,
    ProposedPoint,
    Record,
    SweepPart,
)
from polysweep.trainer.text import brief

FORMAT: Final = 2
"""Of records. 2: a record's claim refers to a lease, so that version 1 must not judge whether it is stale."""

PART_FORMAT: Final = 2
"""Of the parts of a sweep's list of trials. 2: decisions add some of them, which version 1 would mix up."""

CALIBRATION_FORMAT: Final = 1

_NEEDED: Final = ("outcome", "width", "epoch")
_RECORD: Final = TypeAdapter(Record)
_LIST: Final = TypeAdapter(ListOfTrials)
_PART: Final = TypeAdapter(SweepPart)
_POINT: Final = TypeAdapter(ProposedPoint)
_BEAT: Final = TypeAdapter(Beat)
_CLAIM: Final = TypeAdapter(ClaimFields)
_CALIBRATION: Final = TypeAdapter(CalibrationFields)


def parse_json(content: bytes, path: str) -> Any:
    """The value of a JSON file, never None.

    Raises `StoreError` if it is not JSON, is empty or null, is nested too deeply, or holds NaN, a number of thousands
    of digits or half a character.
    """
    if not content.strip():
        raise StoreError(f"{path}: damaged, it is empty")
    try:
        value = from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise StoreError(f"{path}: damaged, not JSON: {error}") from None
    if value is None:
        raise StoreError(f"{path}: damaged, it is null")
    return value


def parse_content(content: bytes | UnreadableError | None, path: str) -> Any:
    """The value of a JSON file that was read, None if it does not exist. Raises the error of reading it."""
    if isinstance(content, UnreadableError):
        raise content
    return None if content is None else parse_json(content, path)


def json_bytes(value: Any) -> bytes:
    """The content of a JSON file."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def require_known_format(value: Any, path: str, newest: int = FORMAT) -> None:
    """Raise `NewerFormatError` for a file of a newer version, `StoreError` for one that names no valid format."""
    format_ = value.get("format") if isinstance(value, Mapping) else None
    if isinstance(format_, int) and not isinstance(format_, bool) and format_ > newest:
        raise NewerFormatError(path, format_, newest)
    if not isinstance(format_, int) or isinstance(format_, bool) or format_ < 1:
        what = f"format {brief(format_)}" if isinstance(value, Mapping) else f"a {type(value).__name__}"
        raise StoreError(f"{path}: damaged: {what}; expected a format up to {newest}")


def checked_record(record: Any, trial_id: str, path: str) -> dict[str, Any]:
    """The record of the trial, every field that a reader uses of the type that it relies on.

    Raises `NewerFormatError`, or `StoreError` with the field that is wrong.
    """
    require_known_format(record, path)
    if missing := [key for key in _NEEDED if key not in record]:
        raise StoreError(f"{path}: damaged: no {', '.join(missing)}")
    _require(_RECORD, record, path)
    if record.get("trial_id", trial_id) != trial_id:
        raise StoreError(f"{path}: damaged: belongs to trial {brief(record['trial_id'])}")
    checked: dict[str, Any] = record
    return checked


def listed_trials(value: Any, path: str) -> list[dict[str, Any]]:
    """The trials that a sweep's `trials.json` lists. Raises as `checked_record`."""
    require_known_format(value, path)
    _require(_LIST, value, path)
    trials: list[dict[str, Any]] = value["trials"]
    return trials


def checked_part(value: Any, path: str) -> SweepPart:
    """A part of a sweep's list of trials. Raises as `checked_record`."""
    require_known_format(value, path, PART_FORMAT)
    try:
        return _PART.validate_python(value)
    except ValidationError as error:
        raise _damage(error, path) from None


def checked_point(value: Any, path: str) -> ProposedPoint:
    """A point that bayes has proposed. Raises `StoreError` if it is not one."""
    _require(_POINT, value, path)
    point: ProposedPoint = value
    return point


def checked_calibration(value: Any, path: str) -> CalibrationFields:
    """A measurement of a signature on a kind of device. Raises as `checked_record`."""
    require_known_format(value, path, CALIBRATION_FORMAT)
    try:
        _require(_CALIBRATION, value, path)
    except StoreError as error:
        raise StoreError(f"{error}; remove it, and K is measured again") from None
    fields: CalibrationFields = value
    return fields


def checked_claim(content: bytes) -> ClaimFields | None:
    """A claim that refers to a lease; None if it cannot be read, or refers to none."""
    try:
        return _CLAIM.validate_python(from_json(content, allow_inf_nan=False))
    except ValueError:  # also pydantic's
        return None


def checked_beat(content: bytes) -> Beat | None:
    """The file of a lease or a launch; None if it cannot be read."""
    try:
        return _BEAT.validate_python(from_json(content, allow_inf_nan=False))
    except ValueError:  # also pydantic's
        return None


def _require(model: TypeAdapter[Any], value: Any, path: str) -> None:
    """Raise `StoreError` with the first place at which a value does not match the model."""
    try:
        model.validate_python(value)
    except ValidationError as error:
        raise _damage(error, path) from None


def _damage(error: ValidationError, path: str) -> StoreError:
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return StoreError(f"{path}: damaged: {place}{': ' if place else ''}{first['msg']} (got {brief(first['input'])})")
