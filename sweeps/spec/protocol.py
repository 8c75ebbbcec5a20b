"""What a spec says of seeds beyond its tuning runs: which seeds report, and how many are added until it is decided."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from polysweep.sweeps.spec.preregistration import AMOUNT_SCHEMA, Amount, Value, read_amount
from polysweep.trainer.components.options import Count, increasing, number

LARGEST_SEED: Final = 2**63 - 1
MOST_LOOKS: Final = 99
MOST_SEEDS: Final = 10_000
LEAST_LEVEL: Final = 1e-6
LEAST_LOOK: Final = 2
"""Seeds of a cell at a look: one has no spread."""


def distinct(values: list[int]) -> list[int]:
    """Refuse a list with a value that is there twice. Raises `ValueError`."""
    if twice := [value for at, value in enumerate(values) if value in values[:at]]:
        raise ValueError(f"seed {twice[0]} is listed twice")
    return values


def listed_seeds(value: object) -> object:
    """Refuse what is no list. Raises `ValueError`."""
    if not isinstance(value, list) or not value:
        raise ValueError("a list of seeds, such as [0, 1, 2]")
    return value


Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED, strict=True)]
Seeds = Annotated[list[Seed], BeforeValidator(listed_seeds), Field(min_length=1), AfterValidator(distinct)]


Looks = Annotated[
    list[Annotated[int, Field(ge=LEAST_LOOK, le=MOST_SEEDS, strict=True)]],
    Field(min_length=1, max_length=MOST_LOOKS),
    AfterValidator(increasing),
]


Level = Annotated[float, BeforeValidator(number), Field(ge=LEAST_LEVEL, lt=0.5)]


class Protocol(BaseModel):
    """Candidates run on some seeds; the one that they choose in each cell runs on others, which alone report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tune_on: Seeds  # of every candidate
    report_on: Seeds  # of the chosen ones: means and tests are over these
    retrain: bool = Field(default=False, strict=True)  # the chosen ones train on train + val, to the last epoch
    budget: Count | None = None  # candidates of every cell, drawn from what is tuned

    def __str__(self) -> str:
        """`tuned on seeds 0, 1, 2, reported on 3, 4 (retrained on train + val)`."""
        tuning, reporting = (seeds_text(seeds) for seeds in (self.tune_on, self.report_on))
        again = " (retrained on train + val, last epoch)" if self.retrain else ""
        return f"tuned on seeds {tuning}, reported on seeds {reporting}{again}"


class Replication(BaseModel):
    """Cells that differ in one field get seeds until each comparison is decided, or the last look is made."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    compare: (
        str | Annotated[dict[str, Annotated[list[Value], Field(min_length=2)]], Field(min_length=1, max_length=1)]
    )  # a field with all its values, or with these
    looks: Looks  # seeds of each open cell: 3, 5, 10, ...
    level: Level = 0.05  # of any false decision, over all looks and comparisons
    margin: Annotated[Amount, BeforeValidator(read_amount), WithJsonSchema(AMOUNT_SCHEMA)] | None = None
    """Cells that differ by less are equivalent."""
    max_trials: Count | None = None  # of the whole sweep
    metric: str = ""  # by default the sweep's

    @property
    def field(self) -> str:
        """What the cells that are compared differ in."""
        return self.compare if isinstance(self.compare, str) else next(iter(self.compare), "")

    def values(self, cells: Sequence[dict[str, Any]]) -> list[Any]:
        """The values of `field` that are compared, of these cells."""
        if not isinstance(self.compare, str):
            return list(self.compare[self.field])
        return list(dict.fromkeys(cell[self.field] for cell in cells if self.field in cell))

    def plan(self) -> dict[str, Any]:
        """As a launch keeps it; without `max_trials`, which may be raised."""
        return {**self.model_dump(exclude={"max_trials"}), "margin": None if self.margin is None else str(self.margin)}


def metric_reported(selected_by: str, protocol: Protocol | None) -> str:
    """What is reported if nothing else is asked for: the metric that selects, of retrained trials on the test set."""
    return selected_by.replace("val/", "test/", 1) if protocol and protocol.retrain else selected_by


def more_seeds(used: Sequence[int]) -> Iterator[int]:
    """The seeds that replication adds, in order: 0, 1, 2, ... without those in use."""
    return (seed for seed in itertools.count() if seed not in used)


def seeds_text(seeds: Sequence[int]) -> str:
    """`0, 1, 2`; `3 to 12` of many that follow one another."""
    if len(seeds) > 3 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))
