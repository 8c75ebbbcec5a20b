"""One trial: its frozen, typed config and the id that follows from it alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails

from polysweep.trainer.components.component import AUGMENTATIONS, REQUIRED, Component, load
from polysweep.trainer.components.fields import (
    fields_read,
    options_of,
    refuse_unread,
    require_together,
    with_defaults,
)
from polysweep.trainer.components.options import Count, number
from polysweep.trainer.components.plugins import component, is_own
from polysweep.trainer.components.registry import REGISTRY
from polysweep.trainer.errors import ConfigError, expected
from polysweep.trainer.text import brief

NUMERICS: Final = 1
"""Raised when the golden test of the trainer's numbers changes, so that old and new numbers never mix."""

ID_DIGITS: Final = 16
Base = Literal["sgd", "sgdw", "adam", "adamw"]
RadiusSchedule = Literal["constant", "inverse_sqrt", "inverse"]
Precision = Literal["float32", "bfloat16", "float64", "tf32"]
Scalar = bool | int | float | str
OptionValue = Scalar | None | tuple[Scalar | None, ...]
"""What an option of a component may be. A list is a tuple here, and a list in JSON."""


def _positive_zero(value: float) -> float:
    return value + 0.0  # -0.0 and 0.0 are one value and must be one id


Real = Annotated[float, BeforeValidator(number), Field(allow_inf_nan=False)]
NonNegative = Annotated[Real, Field(ge=0)]
Positive = Annotated[Real, Field(gt=0)]

COMPONENT_FIELDS: Final = tuple(REGISTRY)
OPTION_FIELDS: Final = tuple(f"{kind}_options" for kind in REGISTRY)


class TrialConfig(BaseModel):
    """Everything that a trial's numbers depend on, besides device, thread count and stack width.

    A field that the chosen task, optimizer or scheduler does not read is None and must not be given, so that equal
    trials have equal configs. Use `TrialConfig.parse` for input of a user: it raises `ConfigError`, which names the
    field, the offender and the valid choices.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    task: str
    task_options: dict[str, OptionValue] = {}
    model: str
    model_options: dict[str, OptionValue] = {}
    optimizer: str
    optimizer_options: dict[str, OptionValue] = {}
    scheduler: str
    scheduler_options: dict[str, OptionValue] = {}
    base: Base | None = None  # whose descent step USAM and SAM take
    rho: NonNegative | None = None  # radius. SAM: length in weight space; USAM: multiple of the gradient
    rho_schedule: RadiusSchedule | None = None  # of step t: rho, rho / sqrt(t + 1), rho / (t + 1)
    weight_decay: NonNegative = 0.0  # coefficient of theta in the descent step
    lr: Positive | None = None  # step size; of cosine: its first epoch's; of momo and ngn: the largest
    lr_min: NonNegative | None = None  # cosine: the step size that epoch T would have
    gamma_b: Positive | None = None  # Polyak, DecSPS: cap of the step size
    lower_bound: Real | None = None  # Polyak and its relatives: lower bound of the mini-batch loss
    momentum: Annotated[Real, Field(ge=0, lt=1)] | None = None  # heavy ball, as torch.optim.SGD
    label_smoothing: Annotated[Real, Field(ge=0, lt=1)] | None = None  # of the training loss only
    label_noise: Annotated[Real, Field(ge=0, lt=1)] | None = None  # share of the training labels made another class
    augmentation: Literal[AUGMENTATIONS] | None = None  # type: ignore[valid-type]  # of the training images
    batch_size: Count = 128  # images per mini-batch, an epoch's last one may be smaller; of a convex task f_i a step
    epochs: Count = 100  # passes over the training set; of a convex task rows of its history
    seed: Annotated[int, BeforeValidator(number), Field(ge=0, lt=2**63)] = 0
    val_fraction: Annotated[Real, Field(ge=0, lt=1)] = 0.0  # of the training set, held out, stratified
    batchnorm_statistics: Literal["both", "first"] | None = None  # passes that update the running statistics
    precision: Precision = "float32"  # bfloat16, tf32: of products only; all else stays float32

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, raw: Any) -> Any:
        """Refuse what no component reads, and fill in the defaults of what one does."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"a trial config is a mapping, not {type(raw).__name__}")
        values = {key: value for key, value in raw.items() if value is not None}
        for key in raw:
            if key not in cls.model_fields:
                raise ConfigError(str(key), f"unknown field; {expected(key, cls.model_fields)}")
        for kind in COMPONENT_FIELDS:
            if kind not in values:
                raise ConfigError(kind, f"missing; {expected('', REGISTRY[kind])}")
        parts = parts_of(values)
        require_together(parts, values)
        refuse_unread(parts, values)
        values = with_defaults(parts, values)
        for kind, part in parts.items():
            values[f"{kind}_options"] = options_of(kind, part, values)
        if parts["task"].precisions:
            values.setdefault("precision", parts["task"].precisions[0])
        return values

    @model_validator(mode="after")
    def _fits(self, info: ValidationInfo) -> Self:
        task = component("task", self.task)
        if not (info.context or {}).get("recorded"):
            _require_distinct(self)
        if task.precisions and self.precision not in task.precisions:
            raise ConfigError(
                "precision", f"{self.precision!r} is not for {self.task}; its own: {', '.join(task.precisions)}"
            )
        for part in (component("scheduler", self.scheduler), component("optimizer", self.optimizer), task):
            if part.check:
                load(part.check)(self)
        if task.problem:
            return self
        if self.augmentation is not None and self.augmentation not in task.augmentations:
            raise ConfigError(
                "augmentation",
                f"{self.augmentation!r} is not for {self.task}; its own: {', '.join(task.augmentations)}",
            )
        if not task.train_size:
            return self  # a user's task that does not say: `trainer.tasks.loading.load_task` checks
        held_out = round(self.val_fraction * task.train_size)
        kept = task.train_size - held_out
        if self.val_fraction and task.smallest_class and min(held_out, kept) * task.smallest_class < task.train_size:
            raise ConfigError(
                "val_fraction",
                f"{self.val_fraction} of {task.train_size} training images of {self.task} leaves a class empty",
            )
        if self.batch_size > kept:
            raise ConfigError(
                "batch_size", f"{self.batch_size} is larger than the {kept} training images of {self.task}"
            )
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any], *, recorded: bool = False) -> TrialConfig:
        """Validate a user's values.

        `recorded` is for what a Store has kept of an earlier version: what was allowed then can still be read.

        Raises `ConfigError` (with `.key`) for the first field that is wrong.
        """
        try:
            return cls.model_validate(values, context={"recorded": recorded})
        except ValidationError as error:
            raise _first(error.errors()) from None

    def canonical(self) -> dict[str, Any]:
        """The config without the fields that equal their default: what the id is made of and the Store keeps.

        A field that a later version adds with a default therefore changes no id.
        """
        parts = parts_of(self.model_dump(include={*COMPONENT_FIELDS, "base"}))
        used = fields_read(parts)
        kept: dict[str, Any] = {}
        for key, default in _defaults(type(self)).items():
            value = getattr(self, key)
            if key in OPTION_FIELDS:
                value = _not_default(parts[key.removesuffix("_options")].options, json.dumps(value)) if value else {}
            default = used.get(key, default)  # noqa: PLW2901
            if value is not None and (default is REQUIRED or value != default):
                kept[key] = _positive_zero(value) if isinstance(value, float) else value
        return kept

    @property
    def trial_id(self) -> str:
        """First 16 hex digits of SHA-256 over the canonical JSON of the config and `NUMERICS`.

        The versions that a user's own parts declare are hashed too. Independent of key order, number spelling, sweep
        and machine; also the W&B run id.
        """
        hashed: dict[str, Any] = {"config": self.canonical(), "numerics": NUMERICS}
        if versions := self.versions:
            hashed["versions"] = versions
        return hashlib.sha256(_SORTED.encode(hashed).encode()).hexdigest()[:ID_DIGITS]

    @property
    def versions(self) -> dict[str, int]:
        """By kind, the version that a user's own part declares."""
        own = [kind for kind in COMPONENT_FIELDS if is_own(kind, getattr(self, kind))]
        return {kind: component(kind, getattr(self, kind)).version or 1 for kind in own}

    @property
    def signature(self) -> str:
        """What all rows of one stack share, as a string that can be compared and sorted."""
        optimizer = component("optimizer", self.optimizer).on(self.base)
        shared = {key: getattr(self, key) for key in _SHARED}
        shared["family"] = optimizer.family
        if optimizer.rowwise_options:
            del shared["optimizer_options"]
        return _SORTED.encode(shared)

    def flat(self) -> dict[str, OptionValue]:
        """The fields in use, options flattened to `model_options.hidden`: the W&B config, the columns of `runs`."""
        values: dict[str, OptionValue] = {}
        for key, value in self.model_dump().items():
            if isinstance(value, dict):
                values |= {f"{key}.{option}": setting for option, setting in value.items()}
            elif value is not None:
                values[key] = value
        return values


def parts_of(values: Mapping[str, Any]) -> dict[str, Component]:
    """By kind, the component that a config's values name. Raises `ConfigError` with the valid names."""
    parts = {kind: component(kind, values[kind]) for kind in COMPONENT_FIELDS}
    return {**parts, "optimizer": parts["optimizer"].on(values.get("base"))}


_SORTED: Final = json.JSONEncoder(sort_keys=True, allow_nan=False)


@lru_cache(maxsize=8)
def _defaults(config: type[TrialConfig]) -> dict[str, Any]:
    """By field its default, `REQUIRED` if it has none; of options those of the component are the defaults."""
    fields = {key: REQUIRED if info.is_required() else info.default for key, info in config.model_fields.items()}
    return {**fields, **{key: {} for key in OPTION_FIELDS}}


@lru_cache(maxsize=4096)
def _not_default(options: type[BaseModel], text: str) -> dict[str, Any]:
    """Those of a component's options, given as JSON, that differ from their default, as JSON has them."""
    return options(**json.loads(text)).model_dump(mode="json", exclude_defaults=True)


_SHARED: Final = (
    "task",
    "task_options",
    "model",
    "model_options",
    "batch_size",
    "epochs",
    "precision",
    "val_fraction",
    "batchnorm_statistics",
    "augmentation",
    "optimizer_options",
)


@lru_cache(maxsize=64)
def _adapter(name: str) -> TypeAdapter[Any]:
    info = TrialConfig.model_fields[name]
    annotation: Any = info.annotation
    return TypeAdapter(Annotated[annotation, *info.metadata] if info.metadata else annotation)


def check_field(name: str, value: Any) -> ConfigError | None:
    """What is wrong with a value of a field by itself."""
    try:
        _adapter(name).validate_python(value)
    except ValidationError as error:
        return _first([{**error.errors()[0], "loc": (name,)}])
    return None


def radius_schedules() -> tuple[str, ...]:
    """The valid values of `rho_schedule`."""
    return get_args(RadiusSchedule)


def _require_distinct(config: TrialConfig) -> None:
    """Raise `ConfigError` for a cosine that does not fall, and for a rule that is another one under its own name."""
    if "sgdw" in (config.optimizer, config.base) and not config.momentum:
        raise ConfigError("momentum", "0: decoupled weight decay is then the coupled one of 'sgd'; take that instead")
    lr, lr_min = config.lr, config.lr_min
    if config.scheduler in ("cosine", "warmup-cosine") and lr is not None and lr_min is not None and lr_min >= lr:
        what = "the constant step size under another name" if lr_min == lr else "a step size that rises"
        raise ConfigError("lr_min", f"{lr_min} is not below lr = {lr}: that is {what}; take a smaller lr_min")


def _first(errors: list[ErrorDetails]) -> ConfigError:
    first = errors[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause
    key = str(first["loc"][0]) if first["loc"] else "config"
    message = str(cause) if cause is not None else first["msg"]
    return ConfigError(key, f"{message} (got {brief(first['input'])})")
