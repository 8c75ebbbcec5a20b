"""What tests of probes share: a small sweep, and measurements in this process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.scheduling import probe_driver, ray_environment
from polysweep.sweeps.worker.probe_run import measure

Run = Callable[..., subprocess.CompletedProcess[str]]
SPEC: dict[str, Any] = {
    "name": "small",
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "mlp"},
        "model_options": {"value": {"hidden": 4, "layers": 1}},
        "optimizer": {"value": "usam"},
        "rho": {"value": 0.1},
        "batch_size": {"value": 256},
        "epochs": {"value": 2},
    },
    "variants": [
        {"scheduler": {"value": "constant"}, "lr": {"values": [0.01, 0.1]}},
        {"scheduler": {"value": "polyak"}},
    ],
    "tuned": ["lr"],
    "seeds": 2,
    "launch": {"stack": 3},
}


def spec_file(folder: Path, **changes: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(json.dumps({**SPEC, **changes}))
    return path


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are measured in this process."""

    def run_jobs(jobs: Any, *_: Any, **__: Any) -> tuple[int, list[str]]:
        results = [measure(job) for job in jobs]
        return sum(count for count, _ in results), [text for _, problems in results for text in problems]

    monkeypatch.setattr(probe_driver, "run_jobs", run_jobs)
    monkeypatch.setattr(ray_environment, "prepare", lambda *_, **__: None)


@pytest.fixture
def probe_here(run_here: Run, without_ray: None) -> Run:
    """`polysweep probe ...` in this process and without Ray."""

    def probe(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return run_here("probe", *arguments, cpu_seconds=600, wall_seconds=1800)

    return probe
