"""`polysweep paper`: all of it in miniature, and what it refuses before anything starts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.paper import parts
from polysweep.sweeps.scheduling import driver, probe_driver, ray_environment
from polysweep.sweeps.worker.probe_run import measure
from tests.support.commands import assert_user_error
from tests.support.without_ray import one_by_one

Run = Callable[..., subprocess.CompletedProcess[str]]
CONSTANT = {"scheduler": {"value": "constant"}, "lr": {"value": 0.1}}
POLYAK = {"scheduler": {"value": "polyak"}}
IMAGES = {
    "task": {"value": "cifar10"},
    "model": {"value": "resnet20"},
    "optimizer": {"value": "usam"},
    "weight_decay": {"value": 5e-4},
    "rho": {"value": 0.1},
}
RIDGE = {
    "task": {"value": "ridge"},
    "model": {"value": "linear"},
    "optimizer": {"value": "usam"},
    "batch_size": {"value": 100},
    "task_options.check": {"value": True},
}
SMALL: dict[str, dict[str, Any]] = {
    "paper-cifar": {
        "parameters": {**IMAGES, "weight_decay": {"values": [0, 5e-4]}, "rho": {"values": [0.1, 0.4]}},
        "variants": [CONSTANT, POLYAK],
    },
    "paper-noise": {"parameters": {**IMAGES, "label_noise": {"values": [0, 0.4]}}, "variants": [CONSTANT, POLYAK]},
    "sam-family": {
        "parameters": {**IMAGES, "optimizer": {"values": ["sam", "asam"]}, "batchnorm_statistics": {"value": "first"}},
        "variants": [CONSTANT, POLYAK],
    },
    **{
        name: {
            "parameters": {**RIDGE, "scheduler": {"value": "polyak-deterministic"}, "rho": {"value": rho}},
            "metric": {"name": "suboptimality/relative", "goal": "minimize"},
        }
        for rho, name in enumerate(
            ("theory-deterministic", "theory-stochastic", "adaptive-deterministic", "adaptive-stochastic"), start=1
        )
    },
}
"""By file the spec that stands for it: the same fields, two seeds."""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's sweeps with a few cells each, which are trained for an epoch."""
    folder = tmp_path / "specs"
    folder.mkdir()
    for name, fields in SMALL.items():
        spec = {"name": name, "seeds": 2, "launch": {"stack": 8}, **fields}
        (folder / f"{name}.yaml").write_text(json.dumps(spec))
    monkeypatch.setattr(parts, "SPECS", folder)
    for part in parts.PARTS:
        epochs = {**part.rehearsed, "epochs": {"value": 1}}
        monkeypatch.setitem(part.__dict__, "rehearsed", epochs)


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Launches and probes in this process; the list has what was started."""
    started: list[str] = []

    def launch(spec: Any, *rest: Any, **checks: Any) -> Any:
        started.append(spec.name)
        return one_by_one(spec, *rest, **checks)

    def run_jobs(jobs: Any, *_: Any, **__: Any) -> tuple[int, list[str]]:
        started.append("probe")
        return sum(measure(job)[0] for job in jobs), []

    monkeypatch.setattr(driver, "launch", launch)
    monkeypatch.setattr(probe_driver, "run_jobs", run_jobs)
    monkeypatch.setattr(ray_environment, "prepare", lambda *_, **__: None)
    return started


@pytest.mark.usefixtures("small")
def test_a_rehearsal_trains_measures_and_writes_it_up_and_again_starts_nothing(
    run_here: Run, without_ray: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where no LaTeX is
    asked = ("paper", "--rehearsal", "--store", tmp_path / "store", "--out", tmp_path / "paper")
    limits = {"cpu_seconds": 600, "wall_seconds": 1800}
    first = run_here(*asked, **limits)
    assert first.returncode == 0, first.stdout + first.stderr
    assert len(without_ray) == 7 + 3 and "Polyak steps find flatter minima, SAM family: of " in first.stdout
    page = (tmp_path / "paper" / "paper.html").read_text()
    for words in (
        "This is a rehearsal", "CIFAR-100, ResNet-32, USAM, weight decay 0.0005", "90.56 ± 0.18",
        "Synthetic ridge regression",
        "Flatter minima, noisy labels", "Corruptions of the test set", "Algorithm 1: ", "Hours of stacks",
    ):  # fmt: skip
        assert words in page, words
    assert page.count("<figure>") >= 8 and len(list((tmp_path / "paper" / "specs").iterdir())) == 7

    without_ray.clear()
    again = run_here(*asked, **limits)
    assert again.returncode == 0 and without_ray == [], again.stdout + again.stderr
    assert again.stdout.count("nothing to start") == 7 and again.stdout.count("nothing to measure") == 3

    planned = run_here("paper", "--plan", "--rehearsal", "--store", tmp_path / "store")
    assert planned.returncode == 0 and "rehearsal-cifar (The CIFAR tables): 64 trials, 64 ended" in planned.stdout
    assert "GPU-hours" not in planned.stdout


def test_the_plan_of_the_real_paper_says_hours_by_class_of_device(run_here: Run, tmp_path: Path) -> None:
    planned = run_here("paper", "--plan", "--store", tmp_path / "store", cpu_seconds=120)
    assert planned.returncode == 0 and "paper-cifar (The CIFAR tables): 1152 trials, 0 ended" in planned.stdout
    assert "GPU-hours on NVIDIA RTX 6000 Ada (the paper's)" in planned.stdout and not (tmp_path / "store").exists()


def test_without_data_one_line_says_which_files_to_put_where(run_here: Run, tmp_path: Path) -> None:
    data = tmp_path / "data"
    answer = run_here("paper", "--store", tmp_path / "store", "--data-dir", data, "--out", tmp_path / "paper")
    assert_user_error(answer, "cifar-10-python.tar.gz", "cifar-100-python.tar.gz", str(data), "--rehearsal")
    assert answer.stderr.count("\n") == 1 and not (tmp_path / "paper").exists()


def test_gpus_that_are_no_number_are_one_line(run_here: Run, tmp_path: Path) -> None:
    answer = run_here("paper", "--plan", "--gpus", "many", "--store", tmp_path / "store")
    assert_user_error(answer, "--gpus", "'many'")
    assert answer.stderr.count("\n") == 1


def test_another_sweep_of_one_of_the_names_is_found_before_anything_starts(
    run_here: Run, without_ray: list[str], tmp_path: Path
) -> None:
    other = tmp_path / "rehearsal-family.yaml"
    parameters = {
        "task": "digits",
        "model": "linear",
        "optimizer": "sgd",
        "scheduler": "constant",
        "lr": 0.1,
        "epochs": 1,
    }
    other.write_text(json.dumps({"parameters": {name: {"value": value} for name, value in parameters.items()}}))
    store = tmp_path / "store"
    assert run_here("launch", other, "--store", store, "--wandb", "disabled", cpu_seconds=60).returncode == 0
    without_ray.clear()
    for options in ((), ("--plan",)):
        answer = run_here("paper", "--rehearsal", *options, "--store", store, "--out", tmp_path / "paper")
        assert_user_error(answer, "another sweep 'rehearsal-family'", "--store")
    assert without_ray == [] and not (tmp_path / "paper").exists()
