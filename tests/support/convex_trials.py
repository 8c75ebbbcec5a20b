"""Trials of the convex tasks, for tests."""

from __future__ import annotations

from typing import Any

import pytest

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.train import Report, train

FULL = {"task": "ridge", "model": "linear", "batch_size": 100}
NOISY = {"lambda_r": 1e-3, "consistent": False}


def config(**values: Any) -> TrialConfig:
    """A trial of `ridge`."""
    return TrialConfig.parse({**FULL, "optimizer": "usam", **values})


def run(configs: list[TrialConfig], **options: Any) -> list[list[Report]]:
    """Every row's reports."""
    found: list[list[Report]] = [[] for _ in configs]
    for reports in train(configs, **options):
        for report in reports:
            found[report.row].append(report)
    return found


def last(one: TrialConfig, **options: Any) -> dict[str, Any]:
    """The last history row of a trial alone."""
    return run([one], **options)[0][-1].history


def refusal(**values: Any) -> str:
    """What a config is refused with."""
    with pytest.raises(ConfigError) as caught:
        config(**values)
    return str(caught.value)


def problem_options(kind: str) -> dict[str, Any]:
    """All options of a task, with their defaults."""
    return {"ridge": config(scheduler="polyak", rho=0.1), "logistic": TrialConfig.parse(
        {"task": "logistic", "model": "linear", "optimizer": "sgd", "scheduler": "polyak", "batch_size": 200}
    )}[kind].task_options  # fmt: skip


def histories(reports: list[Report]) -> list[dict[str, Any]]:
    timing = ("seconds", "images_per_second")
    return [{k: v for k, v in one.history.items() if k not in timing} for one in reports]
