"""Small trainings and their histories."""

from __future__ import annotations

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.history import TIMING_COLUMNS
from polysweep.trainer.train import Report
from tests.support.project import TINY

FAST = {**TINY, "epochs": 4}


def configs(*changes: dict, **common: object) -> list[TrialConfig]:
    return [TrialConfig.parse({**FAST, **common, **change}) for change in changes]


def untimed(history: dict) -> dict:
    return {k: v for k, v in history.items() if k not in TIMING_COLUMNS}


def by_row(epochs: list[list[Report]], row: int) -> list[dict]:
    return [untimed(report.history) for reports in epochs for report in reports if report.row == row]
