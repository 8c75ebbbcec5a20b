"""From choices of parameters to trials: every config is validated as a whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from polysweep.sweeps.spec.sweep import SweepTrial, nested
from polysweep.trainer.config import TrialConfig

SCALARS: Final = ("seed", "rho", "lr", "lr_min", "gamma_b", "lower_bound", "weight_decay", "label_smoothing")
"""The fields of which another value needs neither other data nor another look at a user's own parts."""


class Point(NamedTuple):
    """A choice of every parameter but the seed: the variant, and the values as the file gives them."""

    variant: int
    values: Mapping[str, Any]


def trial_of(values: Mapping[str, Any], variant: int = 0, *, recorded: bool = False) -> SweepTrial:
    """The trial with these values. Raises `ConfigError` for the first that is not valid."""
    config = TrialConfig.parse(nested(values), recorded=recorded)
    return SweepTrial(config.trial_id, config.flat(), digits(config.signature), variant)


@lru_cache(maxsize=1024)
def digits(signature: str) -> str:
    """Eight digits that stand for what the rows of a stack share: trials of one signature cost the same."""
    return hashlib.sha256(signature.encode()).hexdigest()[:8]


def kinds(trials: Iterable[SweepTrial]) -> list[SweepTrial]:
    """One trial of each kind: of those that differ in `SCALARS` only the first."""
    found: dict[tuple[Any, ...], SweepTrial] = {}
    for trial in trials:
        found.setdefault(tuple((n, v) for n, v in trial.values.items() if n not in SCALARS), trial)
    return list(found.values())
