"""A small sweep over the paper's convex problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from polysweep import pull, select
from polysweep.analysis.theory.curves import MethodCurve
from polysweep.analysis.theory.lines import lines_of
from polysweep.sweeps.job import Job
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.stack_run import StackRun

SMALL = """
name: theory-small
metric: {name: suboptimality/relative, goal: minimize}
parameters:
  model: {value: linear}
  task_options.check: {value: true}
  task_options.record_every: {value: 5}
  epochs: {value: 60}
variants:
  - {task: {value: ridge}, optimizer: {value: usam}, batch_size: {value: 100}, scheduler: {value: polyak-deterministic}, rho: {values: [2.5, 7.5]}}
  - {task: {value: ridge}, optimizer: {value: usam}, batch_size: {value: 100}, scheduler: {values: [khanh2024, andriushchenko2022]}}
  - {task: {value: ridge}, optimizer: {value: usam}, batch_size: {value: 100}, scheduler: {value: polyak-deterministic}, rho: {value: 20}, rho_schedule: {value: inverse_sqrt}}
  - {task: {value: ridge}, optimizer: {value: lightsam-i}, batch_size: {value: 100}, scheduler: {value: constant}, lr: {values: [10.0, 1.0e+200]}, rho: {value: 0.1}}
  - {task: {value: ridge}, optimizer: {value: usam}, batch_size: {value: 10}, scheduler: {value: polyak-deterministic}, rho: {value: 0.1}}
  - {task: {value: ridge}, task_options.lambda_r: {value: 0.001}, task_options.consistent: {value: false}, optimizer: {value: usam}, batch_size: {value: 10}, scheduler: {value: polyak}, rho: {value: 0.1}, gamma_b: {value: 1.0}}
  - {task: {value: ridge}, task_options.lambda_r: {value: 0.001}, task_options.consistent: {value: false}, optimizer: {value: usam}, batch_size: {value: 10}, scheduler: {value: constant}, rho: {value: 0.1}, lr: {value: 0.05}}
  - {task: {value: ridge}, task_options.lambda_r: {value: 0.001}, task_options.consistent: {value: false}, optimizer: {value: usam}, batch_size: {value: 10}, scheduler: {value: andriushchenko2022}, scheduler_options.setting: {value: stochastic}}
  - {task: {value: logistic}, optimizer: {value: usam}, batch_size: {value: 200}, scheduler: {value: polyak-deterministic}, rho: {value: 1.0}}
  - {task: {value: logistic}, optimizer: {value: usam}, batch_size: {value: 20}, scheduler: {value: polyak}, rho: {value: 0.05}, gamma_b: {value: 1.0}}
tuned: [lr]
seeds: 5
"""  # noqa: E501


def trained(text: str, root: Path) -> str:
    """Run a spec's trials without Ray; returns the sweep's name."""
    store = Store(str(root))
    spec = SweepSpec.parse(text, "small.yaml")
    store.write_sweep(spec)
    groups: dict[str, list[Any]] = {}
    for trial in spec.trials:
        groups.setdefault(trial.config.signature, []).append(trial.config)
    for rows in groups.values():
        job = Job(str(root), tuple(one.canonical() for one in rows), width=len(rows), metric=spec.metric.name,
                  goal=spec.metric.goal, checkpoint_seconds=60)  # fmt: skip
        stack = StackRun(job)
        while stack.advance() is not None:
            pass
        stack.close()
    return spec.name


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Store of SMALL."""
    root = tmp_path_factory.mktemp("theory") / "polysweep-store"
    trained(SMALL, root)
    return root


@pytest.fixture(scope="session")
def lines(small: Path, tmp_path_factory: pytest.TempPathFactory) -> list[MethodCurve]:
    """Its lines."""
    pulled = pull("theory-small", store=Store(str(small)), cache=tmp_path_factory.mktemp("cache"))
    return lines_of(select(pulled, epoch="last"))
