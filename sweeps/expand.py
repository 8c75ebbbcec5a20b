"""From choices of parameters to trials, 100,000 in a few seconds: a config is checked once per value, not per trial.

Trials that differ only in scalars which fit together in every combination are a *family*. Its first member is
validated as a whole, and each further value of a scalar once, in the first member's place; ids are put together from
the canonical JSON of the values. `SweepTrial.config` is `TrialConfig.parse` of the values; a test compares the ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from trainer.config import OPTION_FIELDS, TrialConfig, identity

SCALARS: Final = (
    "seed",
    "rho",
    "lr",
    "gamma_b",
    "lower_bound",
    "weight_decay",
    "momentum",
    "label_smoothing",
)
"""The fields whose validity depends on no other value of these; `lr_min`, which lr bounds, is not one."""


class Point(NamedTuple):
    """A choice of every parameter but the seed: the variant, and the values as the file gives them."""

    variant: int
    values: Mapping[str, Any]


class SweepTrial(NamedTuple):
    """A trial as one sweep sees it. `choice` are its values of the family's `names`."""

    family: Family
    choice: tuple[Any, ...]
    trial_id: str

    @property
    def config(self) -> TrialConfig:
        """The whole config, made when it is asked for."""
        return self.family.parse(dict(zip(self.family.names, self.choice, strict=True)))

    def canonical(self) -> dict[str, Any]:
        """`TrialConfig.canonical`, without making the config."""
        return self.family.canonical(self.choice)

    def value(self, name: str) -> Any:
        """A field, None where it does not apply."""
        return self.choice[self.family.names.index(name)] if name in self.family.names else self.family.flat.get(name)

    @property
    def cell(self) -> dict[str, Any]:
        """What tells its cell from the sweep's other ones: varying fields, without the tuned ones and the seed."""
        return dict(zip(self.family.cell_names, self.cell_key, strict=True))

    @property
    def cell_key(self) -> tuple[Any, ...]:
        """The values of the cell's fields, in their order."""
        family = self.family
        return tuple([value if at is None else self.choice[at] for at, value in family.cell_places])

    @property
    def point(self) -> tuple[Any, ...]:
        """What the seeds of one point share."""
        at = self.family.names.index("seed")
        return id(self.family), *self.choice[:at], *self.choice[at + 1 :]

    @property
    def seed(self) -> int:
        """The trial's seed."""
        return int(self.choice[self.family.names.index("seed")])

    @property
    def epochs(self) -> int:
        """Passes over the training set."""
        return self.family.first.epochs


class Family:
    """Trials whose configs differ only in some of `SCALARS`: those in `names`."""

    def __init__(
        self, fixed: Mapping[str, Any], free: Mapping[str, Any], variant: int = 0, *, recorded: bool = False
    ) -> None:
        """`free` are the values of the first member. Raises `ConfigError` where that is not valid."""
        self.variant = variant  # of the spec
        self.recorded = recorded  # see `TrialConfig.parse`
        self.fixed = dict(fixed)
        self.names = tuple(free)
        self._start = dict(free)
        self.first = self.parse(self._start)
        canonical = self.first.canonical()
        self._versions = self.first.versions
        self._canonical = {k: v for k, v in canonical.items() if k not in free}
        self._texts = {k: json.dumps(v, sort_keys=True) for k, v in canonical.items() if k not in free}
        self._known: dict[tuple[str, str], tuple[Any, str | None]] = {}
        self.cell_names: tuple[str, ...] = ()
        self.cell_places: tuple[tuple[int | None, Any], ...] = ()

    def parse(self, values: Mapping[str, Any]) -> TrialConfig:
        """The config with these values of `names`."""
        return TrialConfig.parse({**self.fixed, **values}, recorded=self.recorded)

    @cached_property
    def flat(self) -> dict[str, Any]:
        """The fields in use of the first member."""
        return dict(self.first.flat())

    @cached_property
    def signature(self) -> str:
        """What the rows of a stack share; it is the same for all members."""
        return self.first.signature

    def member(self, values: Sequence[Any]) -> SweepTrial:
        """The trial with these values of `names`. Raises `ConfigError` for the first that is not valid."""
        choice, texts = [], dict(self._texts)
        for name, value in zip(self.names, values, strict=True):
            key = (name, repr(value))
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = self._check(name, value)
            choice.append(known[0])
            if known[1] is not None:
                texts[name] = known[1]
        return SweepTrial(self, tuple(choice), identity(texts, self._versions))

    def canonical(self, choice: Sequence[Any]) -> dict[str, Any]:
        """The canonical config of a member."""
        values = dict(self._canonical)
        for name, value in zip(self.names, choice, strict=True):
            if self._known_text(name, value) is not None:
                values[name] = value
        return {name: values[name] for name in TrialConfig.model_fields if name in values}

    def _known_text(self, name: str, value: Any) -> str | None:
        key = (name, repr(value))
        if key not in self._known:
            self._known[key] = self._check(name, value)
        return self._known[key][1]

    def _check(self, name: str, value: Any) -> tuple[Any, str | None]:
        """The value as a config holds it, and its canonical JSON, None where that is left out as the default."""
        config = self.parse({**self._start, name: value})
        canonical = config.canonical()
        text = json.dumps(canonical[name]) if name in canonical else None
        return getattr(config, name), text

    def set_cells(self, names: Iterable[str]) -> None:
        """Take those of the fields that apply here as what tells cells apart."""
        self.cell_names = tuple(name for name in names if name in self.flat)
        self.cell_places = tuple(
            (self.names.index(name), None) if name in self.names else (None, self.flat[name])
            for name in self.cell_names
        )


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """`{"model_options.hidden": 8}` -> `{"model_options": {"hidden": 8}}`; all else as it is."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        field, dot, option = name.partition(".")
        if dot and field in OPTION_FIELDS:
            made[field] = {**made.get(field, {}), option: value}
        else:
            made[name] = value
    return made


def by_cell(trials: Iterable[SweepTrial]) -> list[list[SweepTrial]]:
    """The trials of each cell, in the order of first appearance."""
    cells: dict[tuple[Any, ...], list[SweepTrial]] = {}
    for trial in trials:
        cells.setdefault((trial.family.cell_names, *map(repr, trial.cell_key)), []).append(trial)
    return list(cells.values())


def by_point(trials: Iterable[SweepTrial]) -> list[list[SweepTrial]]:
    """The seeds of each point, in the order of first appearance."""
    points: dict[tuple[Any, ...], list[SweepTrial]] = {}
    for trial in trials:
        points.setdefault(trial.point, []).append(trial)
    return list(points.values())
