"""Configs of a spec in which something is wrong: every component, value and combination that cannot be, by line."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from polysweep.sweeps.spec.checks import check_metric
from polysweep.sweeps.spec.expansion import path_of
from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.parameter import Parameter
from polysweep.sweeps.spec.problems import Problems
from polysweep.sweeps.spec.sweep import nested
from polysweep.sweeps.spec.yaml_lines import KeyPath, SpecError
from polysweep.trainer.components.plugins import component
from polysweep.trainer.components.registry import REGISTRY
from polysweep.trainer.config import COMPONENT_FIELDS, TrialConfig, check_field
from polysweep.trainer.errors import ConfigError, expected

MOST_TRIED: Final = 1000
"""Values of a parameter, and choices of components, that are looked at."""
_STAND_INS: Final[Mapping[str, Any]] = {"lr": 0.1, "rho": 0.05, "gamma_b": 1.0}
"""What a missing field is taken to be, so that what else is wrong is found too."""


def check_configs(spec: SpecFields, problems: Problems, conditional: set[str], written: set[str]) -> None:
    """Components that are missing or unknown, values that no field may have, and fields that do not go together.

    Of `written`, the file's own fields, none is missing: what is wrong with it has been said.
    """
    for index, space in enumerate(spec.space):
        checked = _SpaceCheck(spec, index, space, problems, conditional, written)
        checked.components()
        checked.fields()
        if checked.is_complete:
            checked.together()


@dataclass
class _SpaceCheck:
    """The check of one variant with the shared parameters."""

    spec: SpecFields
    index: int
    space: Mapping[str, Parameter]
    problems: Problems
    conditional: set[str]
    written: set[str]

    def __post_init__(self) -> None:
        self._values = {
            name: list(itertools.islice(entry.grid or entry.extremes, MOST_TRIED)) for name, entry in self.space.items()
        }

    @property
    def is_complete(self) -> bool:
        """Whether there is a component of every kind."""
        return all(self._values.get(kind) for kind in COMPONENT_FIELDS)

    def components(self) -> None:
        """Report those that are missing or unknown, and keep the others."""
        for kind in COMPONENT_FIELDS:
            if kind not in self.space and kind not in self.written:
                self._add(ConfigError(kind, f"missing; {expected('', REGISTRY[kind])}"))
            for name in list(self._values.get(kind, ())):
                try:
                    component(kind, name)
                except ConfigError as error:
                    self._add(error)
                    self._values[kind].remove(name)

    def fields(self) -> None:
        """Report the first value of each field that it may not have, and keep the valid ones."""
        for name, values in self._values.items():
            if "." in name or name in COMPONENT_FIELDS:
                continue
            errors = {
                at: error
                for at, value in enumerate(values)
                if value is not None and (error := check_field(name, value)) is not None
            }
            if errors:
                self._add(next(iter(errors.values())))
            self._values[name] = [value for at, value in enumerate(values) if at not in errors]

    def together(self) -> None:
        """Report what does not go together, for every choice of components, then for every value of one parameter."""
        values = {name: choices[0] for name, choices in self._values.items() if choices}
        choices = itertools.product(*[self._values[kind] for kind in COMPONENT_FIELDS])
        for choice in itertools.islice(choices, MOST_TRIED):
            whole = self._mended({**values, **dict(zip(COMPONENT_FIELDS, choice, strict=True))})
            for name, others in self._values.items():
                if whole is None or name in COMPONENT_FIELDS or name not in whole:
                    continue
                for value in others[1:]:
                    if not self._is_valid({**whole, name: value}):
                        break

    def _mended(self, values: dict[str, Any]) -> dict[str, Any] | None:
        """The values with those that are missing and without those that nothing reads; None for what else is wrong."""
        for _ in range(len(values) + len(_STAND_INS)):
            try:
                self._check_metric(TrialConfig.parse(nested(values)))
                return values
            except ConfigError as error:
                is_missing = error.key not in values and error.key in _STAND_INS
                if not is_missing or error.key not in self.written:
                    self._add(error)
                if is_missing:
                    values = {**values, error.key: _STAND_INS[error.key]}
                elif error.key in values and error.key not in COMPONENT_FIELDS and not error.key.startswith("task_"):
                    values = {name: value for name, value in values.items() if name != error.key}
                else:
                    return None
        return None

    def _check_metric(self, config: TrialConfig) -> None:
        try:
            check_metric(self.spec, [config], self.problems.where)
        except SpecError as error:
            self.problems.replace(error)

    def _is_valid(self, values: dict[str, Any]) -> bool:
        try:
            TrialConfig.parse(nested(values))
        except ConfigError as error:
            self._add(error)
            return False
        return True

    def _add(self, error: ConfigError) -> None:
        """A problem at the line of the field; if the field belongs into a variant, with that, and once."""
        message, path = str(error), self._path(error.key)
        if any(name == error.key or name.startswith(f"{error.key}.") for name in self.conditional):
            hint = "; see the variants below"
            if any(message.startswith(f"{error.key}: ") and hint in message for message in self.problems.at(path)):
                return
            message = message.removesuffix("; leave it out") + hint
        self.problems.add(path, message)

    def _path(self, name: str) -> KeyPath:
        return path_of(self.spec, name, self.index, self.space)
