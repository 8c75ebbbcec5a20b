"""Which cells a replication compares: pairs that differ in one field and agree in all others that both have."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from polysweep.sweeps.spec.decisions import by_key
from polysweep.sweeps.spec.preregistration import Claim
from polysweep.sweeps.spec.protocol import Replication
from polysweep.sweeps.spec.sweep import SweepTrial


class Pair(NamedTuple):
    """Two cells, by their `cell_key`."""

    better: str
    than: str
    values: tuple[Any, Any]  # of the field that is compared
    where: str  # what both share: `rho=0.1`


def pairs_of(replication: Replication, trials: Sequence[SweepTrial]) -> list[Pair]:
    """The pairs, in the order of the values that are compared, then of the cells."""
    by_cell = by_key(trials)
    keys, cells = list(by_cell), [members[0].cell for members in by_cell.values()]
    name, pairs = replication.field, []
    for one, other in itertools.combinations(replication.values(cells), 2):
        for a, b in Claim(better={name: other}, than={name: one}).pairs(cells):
            pairs.append(Pair(keys[a], keys[b], (other, one), shared_text(cells[a], cells[b], name)))
    return pairs


def shared_text(cell: Mapping[str, Any], other: Mapping[str, Any], name: str) -> str:
    """What tells this pair from the others that compare the same values."""
    return " ".join(f"{field}={value}" for field, value in {**other, **cell}.items() if field != name)
