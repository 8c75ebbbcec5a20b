"""A launched sweep: what it is, and its trials with their cells, without any code that the trials were made with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from polysweep.trainer.config import TrialConfig

NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What the name of a sweep may be."""
ADDED: Final = "added"
"""The role of a trial that a decision has added."""
EDGE: Final = 0.05
"""The share of a range at each end that counts as its edge."""
OPTIONS: Final = ("task_options", "model_options", "optimizer_options", "scheduler_options")


class HasTrials(Protocol):
    """A spec or a launched sweep."""

    @property
    def name(self) -> str: ...

    @property
    def trials(self) -> Sequence[SweepTrial]: ...


class Selector:
    """What selects the best epoch and the tuned parameters: `name` of a history column, `goal`, and a `target`."""

    name: str
    goal: str
    target: float | None

    @property
    def note(self) -> str:
        """What has to stand beside a number that it selects."""
        return " (selected on test)" if self.name.startswith("test/") else ""

    def is_reached(self, value: float | None) -> bool:
        """Whether the target is reached; never if there is none."""
        if self.target is None or value is None:
            return False
        return value >= self.target if self.goal == "maximize" else value <= self.target


@dataclass(frozen=True)
class RecordedMetric(Selector):
    """The metric of a launched sweep."""

    name: str = "test/top1"
    goal: str = "maximize"
    target: float | None = None


@dataclass(frozen=True)
class Range:
    """What the values of a tuned field were drawn from: infinite ends are none."""

    low: float
    high: float
    is_log: bool = False  # whether they are spread evenly in the logarithm
    is_list: bool = False  # whether only listed values are drawn

    def is_at_end(self, value: float) -> bool:
        """Whether a value is in the first or last 5 % of the range; of a list, whether it is the least or largest."""
        if self.is_list or not (math.isfinite(self.low) and math.isfinite(self.high)):
            return value in (self.low, self.high)
        low, high, at = map(math.log, (self.low, self.high, value)) if self.is_log else (self.low, self.high, value)
        return not low + EDGE * (high - low) < at < high - EDGE * (high - low)


@dataclass(frozen=True)
class Resources:
    """What one stack of a launch asks for."""

    cpus: int = 1
    gpus: float = 0
    concurrency: int | None = None

    @property
    def device(self) -> str:
        """Where a stack's tensors are stored."""
        return "cuda" if self.gpus else "cpu"


@dataclass(frozen=True)
class Settings:
    """What a sweep is, besides its trials."""

    method: str = "grid"
    metric: RecordedMetric = RecordedMetric()
    tuned: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()  # as the file lists them: the order of a cell's fields
    seeds: int = 1
    points: int | None = None  # that a random or bayes sweep has in all
    by_points: bool = False  # whether one stack is one point with all its seeds
    launch: Resources = Resources()
    project: str | None = None  # of W&B
    entity: str | None = None
    early_terminate: str = "none"  # in words
    space: str = ""  # of a search: what it draws from, as JSON
    ranges: tuple[tuple[int, str, Range], ...] = ()  # of a search: variant, tuned field, range
    directions: Mapping[str, str] = field(
        default_factory=dict
    )  # by metric of a task of a user's own: minimize, maximize
    text: str = field(default="", repr=False)  # the spec, as launched
    title: str = ""  # the name as the file has it, if the sweep's is made of it
    protocol: Mapping[str, Any] | None = None  # which seeds tune and which report
    replicate: Mapping[str, Any] | None = None  # what is compared, and looked at when

    def as_json(self) -> dict[str, Any]:
        """As a part has it; an infinite end of a range is null."""
        data = asdict(self)
        for _, _, one in data["ranges"]:
            one |= {end: one[end] if math.isfinite(one[end]) else None for end in ("low", "high")}
        return data

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Settings:
        """From a part. Raises `TypeError`, `KeyError` or `ValueError` if it is damaged."""
        names = {one.name for one in fields(cls)}
        values = {name: value for name, value in data.items() if name in names}
        values["metric"] = RecordedMetric(**values["metric"])
        values["launch"] = Resources(**values["launch"])
        values["tuned"], values["fields"] = tuple(values["tuned"]), tuple(values["fields"])
        values["ranges"] = tuple((variant, name, _range(**one)) for variant, name, one in values["ranges"])
        return cls(**values)


def _range(low: float | None, high: float | None, **kind: bool) -> Range:
    return Range(-math.inf if low is None else low, math.inf if high is None else high, **kind)


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """A trial as one sweep sees it."""

    trial_id: str
    values: Mapping[str, Any]  # the fields in use, options as `model_options.hidden`
    signature: str = ""  # eight digits for what the rows of a stack share
    variant: int = 0  # of the spec
    width: int | None = None  # K that was planned for it
    is_added: bool = False  # by a decision: it reports what tuning trials chose, or is a further seed
    cell_fields: tuple[str, ...] = ()  # of the sweep

    @property
    def config(self) -> TrialConfig:
        """The whole config. Raises `ConfigError` if today's code does not know it."""
        from polysweep.trainer.config import TrialConfig

        return TrialConfig.parse(nested(self.values), recorded=True)

    def value(self, name: str) -> Any:
        """A field, None if it does not apply."""
        return self.values.get(name)

    @property
    def cell(self) -> dict[str, Any]:
        """What distinguishes its cell in the sweep: the fields that vary, without the tuned ones and the seed."""
        return {name: self.values[name] for name in self.cell_fields if name in self.values}

    @property
    def point(self) -> tuple[Any, ...]:
        """What the seeds of one point share."""
        return tuple((name, value) for name, value in self.values.items() if name != "seed")

    @property
    def seed(self) -> int:
        """The trial's seed."""
        return int(self.values.get("seed", 0))

    @property
    def epochs(self) -> int:
        """Passes over the training set."""
        return int(self.values["epochs"])

    def entry(self) -> dict[str, Any]:
        """As a part lists it."""
        return {
            "trial_id": self.trial_id,
            "config": dict(self.values),
            "signature": self.signature,
            "width": self.width,
            "variant": self.variant,
            **({"role": ADDED} if self.is_added else {}),
        }


@dataclass(frozen=True)
class Sweep:
    """A launched sweep: its settings, its trials in the order of its file, and those that have left the file."""

    name: str
    settings: Settings
    trials: Sequence[SweepTrial]
    gone: Sequence[SweepTrial] = ()

    @property
    def metric(self) -> RecordedMetric:
        """What selects."""
        return self.settings.metric

    @property
    def text(self) -> str:
        """The spec, as launched."""
        return self.settings.text

    @cached_property
    def cell_fields(self) -> tuple[str, ...]:
        """The fields that distinguish its cells."""
        return self.trials[0].cell_fields if self.trials else ()


def with_cells(trials: Iterable[SweepTrial], written: Iterable[str], tuned: Iterable[str]) -> list[SweepTrial]:
    """The trials with the fields that distinguish a sweep's cells: those with two or more values in its tuning trials.

    In the order of `written`, then of the configs; without the tuned ones (`model_options` is all of its options) and
    the seed.
    """
    trials = list(trials)
    values_by_field: dict[str, set[Any]] = {}
    for trial in (one for one in trials if not one.is_added):
        for name, value in trial.values.items():
            if name in values_by_field:
                values_by_field[name].add(value)
            else:
                values_by_field[name] = {value}
    hidden = {*tuned, "seed"}
    names = tuple(
        name
        for name in dict.fromkeys([*written, *values_by_field])
        if len(values_by_field.get(name, ())) > 1 and not {name, name.partition(".")[0]} & hidden
    )
    return [
        SweepTrial(one.trial_id, one.values, one.signature, one.variant, one.width, one.is_added, names)
        for one in trials
    ]


def by_cell(trials: Iterable[SweepTrial]) -> list[list[SweepTrial]]:
    """The trials of each cell, in the order of first appearance."""
    cells: dict[tuple[Any, ...], list[SweepTrial]] = {}
    for trial in trials:
        key = tuple((name, repr(trial.values[name])) for name in trial.cell_fields if name in trial.values)
        cells.setdefault(key, []).append(trial)
    return list(cells.values())


def by_point(trials: Iterable[SweepTrial]) -> list[list[SweepTrial]]:
    """The seeds of each point, in the order of first appearance."""
    points: dict[tuple[Any, ...], list[SweepTrial]] = {}
    for trial in trials:
        points.setdefault(trial.point, []).append(trial)
    return list(points.values())


def hashable(value: Any) -> Any:
    """A config's value as a trial has it: a list, which only options may be, is a tuple and can be a key."""
    return tuple(value) if isinstance(value, list) else value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"model_options.hidden": 8}` -> `{"model_options": {"hidden": 8}}`; all else as it is."""
    tree: dict[str, Any] = {}
    for name, value in values.items():
        head, dot, option = name.partition(".")
        if dot and head in OPTIONS:
            tree[head] = {**tree.get(head, {}), option: value}
        else:
            tree[name] = value
    return tree


def flattened(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `nested`."""
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if name in OPTIONS and isinstance(value, Mapping):
            values |= {f"{name}.{option}": setting for option, setting in value.items()}
        else:
            values[name] = value
    return values
