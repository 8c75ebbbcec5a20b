"""What the JSON files of a Store hold: the types that readers may rely on."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from polysweep.trainer.components.options import MAX_STACK

_END_OF_TIME: Final = 253_402_300_799  # the last second of the year 9999, beyond which no clock shows a date

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
    sources: dict[str, str]


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
    directions: NotRequired[dict[str, Literal["minimize", "maximize"]]]
    text: str
    title: NotRequired[str]
    protocol: NotRequired[dict[str, Any] | None]
    replicate: NotRequired[dict[str, Any] | None]


Value = bool | Annotated[int, Field(ge=-(2**63), lt=2**63)] | float | str | None
Config = dict[str, Value | list[Value]]


@with_config(_STRICT)
class SharedFields(TypedDict):
    """What all trials of a part have in common."""

    config: Config
    signature: NotRequired[str]
    variant: NotRequired[Whole]
    width: NotRequired[Annotated[int, Field(ge=1, le=MAX_STACK)] | None]
    role: NotRequired[Literal["added"]]


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
    """A file with a heartbeat."""

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


@with_config(_STRICT)
class WidthFields(TypedDict):
    """What was measured at one K."""

    width: Annotated[int, Field(ge=1, le=MAX_STACK)]
    seconds: Annotated[float, Field(gt=0)]  # per row and step
    memory: Whole  # bytes at the peak


@with_config(_ONLY_THESE)
class CalibrationFields(TypedDict):
    """A measurement of a signature on a kind of device."""

    format: Whole
    device: str
    signature: str
    width: Annotated[int, Field(ge=1, le=MAX_STACK)]
    share: Annotated[float, Field(gt=0, le=1)] | None
    widths: list[WidthFields]
    shares: dict[str, float]
    free: Whole
    seconds: Moment
    time: Moment
