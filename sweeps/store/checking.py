"""Untrusted bytes to checked values: the JSON, records and histories of a Store, whatever has become of them.

Pure functions: they read no file. What is damaged raises `StoreError` with the path, the place and the reason; what a
newer version of polysweep has written raises `NewerFormatError`, because it is not damaged and must not be replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

import pyarrow as pa
from pyarrow import parquet
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import from_json
from typing_extensions import TypedDict

from polysweep.sweeps.store.files import NewerFormatError, StoreError
from polysweep.trainer.components.options import MAX_STACK
from polysweep.trainer.history import HISTORY_COLUMNS, RENAMED
from polysweep.trainer.text import brief

FORMAT: Final = 2
"""Of records. 2: a record's claim refers to a lease, so that version 1 must not judge whether it is stale."""

PART_FORMAT: Final = 1
"""Of the parts of a sweep's list of trials."""

_END_OF_TIME: Final = 253_402_300_799  # the last second of the year 9999, beyond which no clock shows a date
_KINDS: Final = {"epoch": pa.int64(), "step": pa.int64(), "partial": pa.bool_()}


Whole = Annotated[int, Field(ge=0, lt=2**63)]
Moment = Annotated[float, Field(ge=0, le=_END_OF_TIME)]  # seconds
Scalar = bool | int | float | str | None
_STRICT: Final = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")
_ONLY_THESE: Final = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


@with_config(_STRICT)
class Provenance(TypedDict, total=False):
    """What besides its config a trial's numbers may depend on."""

    numerics: Whole | None
    commit: str | None
    versions: dict[str, str]
    device: str | None
    device_model: str | None
    threads: Whole | None
    image: dict[str, Scalar] | None


@with_config(_STRICT)
class Session(TypedDict, total=False):
    """One start of a trial."""

    from_epoch: Whole
    started: Moment
    process: str
    provenance: Provenance


@with_config(_STRICT)
class Divergence(TypedDict, total=False):
    """Where a trial diverged."""

    epoch: Whole
    step: Whole


@with_config(_STRICT)
class Record(TypedDict, total=False):
    """A trial's record as readers may rely on it. Keys that are not named here are kept as they are."""

    trial_id: str
    outcome: Literal["running", "finished", "diverged", "failed", "stopped"]
    width: Annotated[int, Field(ge=1, le=MAX_STACK)]  # K
    epoch: Whole
    epochs: Whole
    started: Moment | None
    ended: Moment | None
    seconds: Moment  # of training
    error: str | None
    errors: list[str | None]
    diverged: Divergence | None
    stalled: bool
    wandb: str | None
    failures: Whole
    extremes: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]
    signature: str
    sessions: list[Session]
    notes: list[str]
    claim: Whole
    provenance: Provenance
    constants: dict[str, float | list[float]]


@with_config(_STRICT)
class MetricFields(TypedDict):
    """What selects."""

    name: str
    goal: Literal["maximize", "minimize"]
    target: float | None


@with_config(_STRICT)
class ResourceFields(TypedDict):
    """What one stack of a launch asks for."""

    cpus: Annotated[int, Field(ge=1, le=2**20)]
    gpus: Annotated[float, Field(ge=0, le=2**20)]
    concurrency: Annotated[int, Field(ge=1, le=2**20)] | None


@with_config(_STRICT)
class SettingsFields(TypedDict):
    """What a sweep is, besides its trials."""

    method: str
    metric: MetricFields
    tuned: list[str]
    fields: list[str]
    seeds: Whole
    points: Whole | None
    by_points: bool
    launch: ResourceFields
    project: str | None
    entity: str | None
    early_terminate: str
    space: str
    ranges: list[Annotated[tuple[Whole, str, dict[str, bool | float | None]], Field(strict=False)]]
    text: str


Value = bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | float | str
Config = dict[str, Value]


@with_config(_STRICT)
class SharedFields(TypedDict):
    """What all trials of a part have in common."""

    config: Config
    signature: NotRequired[str]
    variant: NotRequired[Whole]
    width: NotRequired[Annotated[int, Field(ge=1, le=MAX_STACK)] | None]


@with_config(_STRICT)
class TrialFields(SharedFields):
    """A trial of a part."""

    trial_id: str


@with_config(_STRICT)
class SweepPart(TypedDict):
    """A part of a sweep's list of trials, see `sweeps.store.sweep_index`."""

    format: int
    sweep: NotRequired[SettingsFields]
    columns: list[str]
    shared: SharedFields
    trials: list[TrialFields]
    order: NotRequired[list[str]]


@with_config(_STRICT)
class Listed(TypedDict):
    """One trial of a sweep's list, as versions before `sweep.json` kept it."""

    trial_id: str
    cell: NotRequired[dict[str, Any]]
    gone: NotRequired[bool]


@with_config(_STRICT)
class ListOfTrials(TypedDict):
    """The list of a sweep's trials."""

    trials: list[Listed]


@with_config(_ONLY_THESE)
class PointValues(TypedDict):
    """A choice of every parameter."""

    variant: Whole
    values: dict[str, Any]


@with_config(_STRICT)
class ProposedPoint(TypedDict):
    """What bayes has proposed."""

    point: PointValues
    raw: dict[str, Any]


@with_config(_ONLY_THESE)
class ProcessFields(TypedDict):
    """What a process is recognised by."""

    host: str
    boot: str
    namespace: str
    pid: Whole
    started: Whole


@with_config(_STRICT)
class Beat(TypedDict):
    """A file that beats while its process lives."""

    process: ProcessFields
    released: NotRequired[bool]
    since: NotRequired[Moment]
    launch: NotRequired[str]
    time: NotRequired[Moment]


@with_config(_STRICT)
class ClaimFields(TypedDict):
    """A claim, which refers to a lease."""

    lease: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    released: bool


_NEEDED: Final = ("outcome", "width", "epoch")
_RECORD: Final = TypeAdapter(Record)
_LIST: Final = TypeAdapter(ListOfTrials)
_PART: Final = TypeAdapter(SweepPart)
_POINT: Final = TypeAdapter(ProposedPoint)
_BEAT: Final = TypeAdapter(Beat)
_CLAIM: Final = TypeAdapter(ClaimFields)


def parse_json(content: bytes, path: str) -> Any:
    """The value of a JSON file, never None.

    Raises `StoreError` for what is no JSON, is empty or null, is nested too deeply, or holds NaN, a number of thousands
    of digits or half a character.
    """
    if not content.strip():
        raise StoreError(f"{path}: damaged, it is empty")
    try:
        found = from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise StoreError(f"{path}: damaged, not JSON: {error}") from None
    if found is None:
        raise StoreError(f"{path}: damaged, it is null")
    return found


def require_known_format(found: Any, path: str, known: int = FORMAT) -> None:
    """Raise `NewerFormatError` for a file of a newer version, `StoreError` for one that names no valid format."""
    format_ = found.get("format") if isinstance(found, Mapping) else None
    if isinstance(format_, int) and not isinstance(format_, bool) and format_ > known:
        raise NewerFormatError(path, format_, known)
    if not isinstance(format_, int) or isinstance(format_, bool) or format_ < 1:
        what = f"format {brief(format_)}" if isinstance(found, Mapping) else f"a {type(found).__name__}"
        raise StoreError(f"{path}: damaged: {what}; expected a format up to {known}")


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
    found: dict[str, Any] = record
    return found


def listed_trials(found: Any, path: str) -> list[dict[str, Any]]:
    """The trials that a sweep's `trials.json` lists. Raises as `checked_record`."""
    require_known_format(found, path)
    _require(_LIST, found, path)
    trials: list[dict[str, Any]] = found["trials"]
    return trials


def checked_part(found: Any, path: str) -> SweepPart:
    """A part of a sweep's list of trials. Raises as `checked_record`."""
    require_known_format(found, path, PART_FORMAT)
    try:
        return _PART.validate_python(found)
    except ValidationError as error:
        raise _damage(error, path) from None


def checked_point(found: Any, path: str) -> ProposedPoint:
    """A point that bayes has proposed. Raises `StoreError` where it is none."""
    _require(_POINT, found, path)
    point: ProposedPoint = found
    return point


def checked_claim(content: bytes) -> ClaimFields | None:
    """What a claim says of its lease; None if it cannot be read, or has none."""
    try:
        return _CLAIM.validate_python(from_json(content, allow_inf_nan=False))
    except ValueError:  # also pydantic's
        return None


def checked_beat(content: bytes) -> Beat | None:
    """What a lease or a launch says of its owner; None if that cannot be read."""
    try:
        return _BEAT.validate_python(from_json(content, allow_inf_nan=False))
    except ValueError:  # also pydantic's
        return None


def history_table(content: bytes | None, path: str) -> pa.Table:
    """A trial's history with the names that columns have now; a table without columns where there is no file.

    Raises `StoreError` for what is no Parquet file, lacks a column, has one of another type, or has not the epochs
    1 .. n.
    """
    if content is None:
        return pa.table({})
    try:
        file = parquet.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        table = file.read(use_threads=False)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, MemoryError) as error:  # as pyarrow likes
        raise StoreError(f"{path}: damaged: {_first_line(error)}") from None
    table = table.rename_columns([RENAMED.get(column, column) for column in table.column_names])
    if table.num_rows:
        _require_columns(table, path)
    return table


def _require_columns(table: pa.Table, path: str) -> None:
    """Raise `StoreError` where the columns of a history are not what `Store.write_history` writes."""
    names = table.column_names
    if missing := [column for column in HISTORY_COLUMNS if column not in names]:
        raise StoreError(f"{path}: damaged: no column {', '.join(missing)}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise StoreError(f"{path}: damaged: column {twice[0]!r} is there twice")
    for field in table.schema:
        if field.type != _KINDS.get(field.name, pa.float64()):
            kind = _KINDS.get(field.name, pa.float64())
            raise StoreError(f"{path}: damaged: column {brief(field.name)} is of {field.type}, expected {kind}")
    if table["epoch"].to_pylist() != list(range(1, table.num_rows + 1)):
        raise StoreError(f"{path}: damaged: its epochs are not 1 to {table.num_rows}")


def _require(model: TypeAdapter[Any], found: Any, path: str) -> None:
    """Raise `StoreError` with the first place at which a value is not what the model says."""
    try:
        model.validate_python(found)
    except ValidationError as error:
        raise _damage(error, path) from None


def _damage(error: ValidationError, path: str) -> StoreError:
    first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(map(str, first["loc"]))
    return StoreError(f"{path}: damaged: {place}{': ' if place else ''}{first['msg']} (got {brief(first['input'])})")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
