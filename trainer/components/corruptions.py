"""Corruptions of the test set by name and severity. Imports no torch: commands and tables read their metrics too."""

from __future__ import annotations

from typing import Final, NamedTuple

from polysweep.trainer.errors import UserError
from polysweep.trainer.history import CORRUPTED, CORRUPTIONS, SEVERITIES
from polysweep.trainer.text import brief


class Corruption(NamedTuple):
    """What is done to every image of the test set, and how strongly: 1 to 5."""

    name: str
    severity: int

    @property
    def metric(self) -> str:
        """The history column of its accuracy, a fraction: `test/noise-3`."""
        return f"test/{self.name}-{self.severity}"


def parse(text: str) -> Corruption:
    """`noise-3` -> Corruption("noise", 3). Raises `UserError` with the valid names and severities."""
    if text not in CORRUPTED:
        raise UserError(
            f"unknown corruption {brief(text)}; expected NAME-SEVERITY, such as noise-3: "
            f"NAME one of {', '.join(CORRUPTIONS)}; SEVERITY {SEVERITIES[0]} to {SEVERITIES[-1]}"
        )
    name, _, severity = text.partition("-")
    return Corruption(name, int(severity))


ALL: Final = tuple(map(parse, CORRUPTED))
"""Every corruption at every severity, in order."""
