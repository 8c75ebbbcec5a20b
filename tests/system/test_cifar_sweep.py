"""The paper's experiments in miniature: CIFAR files, ResNets, launch, selection."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.formats import render
from polysweep.analysis.tables.mean_std import long_table
from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.spec.spec import SweepSpec
from tests.support import mini_cifar
from tests.support.project import ROOT
from tests.support.results import records

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SPECS = ROOT / "sweeps" / "specs"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The miniature data sets are plug-ins, in a module of the tests."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def write_spec(path: Path, parameters: dict, **other: object) -> Path:
    spec = {
        "parameters": {k: {"values": v} if isinstance(v, list) else {"value": v} for k, v in parameters.items()},
        **other,
    }
    path.write_text(json.dumps(spec))
    return path


@pytest.mark.parametrize(
    ("models", "held_out", "weight_decays"),
    [
        (["resnet20"], [0.1], [5e-4]),
        pytest.param(["resnet20", "resnet32"], [0.0, 0.1], [0.0, 5e-4], marks=pytest.mark.long),
    ],
)
def test_both_data_sets_models_optimizers_and_all_schedulers_train_end_to_end(
    run: Run, launch_here: Run, tmp_path: Path, models: list[str], held_out: list[float], weight_decays: list[float]
) -> None:
    """12 trials with a held-out set; in the long test 96, of both models, with and without it and decay, K measured."""
    mini_cifar.write_archives(tmp_path / "data")
    spec = write_spec(
        tmp_path / "mini.yaml",
        {
            "task": ["tests.support.mini_cifar:cifar10", "tests.support.mini_cifar:cifar100"],
            "model": models,
            "optimizer": ["usam", "sam"],
            "weight_decay": weight_decays,
            "val_fraction": held_out,
            "rho": 0.1,
            "batch_size": 40,
            "epochs": 1,
        },
        variants=[
            {"scheduler": {"value": "constant"}, "lr": {"value": 0.1}},
            {"scheduler": {"value": "cosine"}, "lr": {"value": 0.1}},
            {"scheduler": {"value": "polyak"}},
        ],
        launch={"data_dir": "data", "checkpoint_seconds": 5, "stack": 1 if len(models) == 1 else "auto"},
    )
    launch = launch_here if len(models) == 1 else partial(run, "launch", timeout=1200)
    answer = launch(spec, "--store", "store")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"mini: {12 * len(models) * len(held_out) * len(weight_decays)} finished" in answer.stdout
    made = pull("mini", store=str(tmp_path / "store"), cache=tmp_path / "cache")
    assert (made.runs["last/val/top1"].notna()).tolist() == (made.runs["val_fraction"] > 0).tolist()
    assert made.runs["last/test/top1"].between(0, 1).all()
    assert set(made.runs["width"]) == {1}, "convolutions are not stacked on a CPU"
    assert (tmp_path / "data" / "mini10-decoded-1").is_dir()


def test_the_papers_sweeps_have_the_papers_counts() -> None:
    """192 cells of table 16 times: 3 + 2 + 1 candidates of 3 seeds each; the caps share those with gamma_b = 1."""
    cifar, caps = (plan(SweepSpec.load(SPECS / f"paper-{name}.yaml"), {}) for name in ("cifar", "gamma-b"))
    assert (len(cifar.trials), len(cifar.cells())) == (1152, 192)
    assert (len(caps.trials), len(caps.cells())) == (672, 224)
    assert len({t.config.gamma_b for t in caps.trials}) == 7
    shared = {t.trial_id for t in cifar.trials} & {t.trial_id for t in caps.trials}
    assert shared == {t.trial_id for t in caps.trials if t.config.gamma_b == 1.0} and len(shared) == 96
    assert cifar.to_measure and not cifar.planned_widths, "K is measured where the trials run"
    for trial in (*cifar.trials, *caps.trials):
        config = trial.config
        assert (config.batch_size, config.epochs, config.momentum, config.augmentation) == (128, 100, 0.0, "crop+flip")


def test_scrambled_test_labels_change_no_selection_on_validation(
    launch_here: Run, run_here: Run, tmp_path: Path
) -> None:
    mini_cifar.write_archives(tmp_path / "data")
    parameters = {
        "task": ["tests.support.mini_cifar:cifar10", "tests.support.mini_cifar:scrambled10"],
        "model": "mlp",
        "optimizer": "usam",
        "scheduler": "constant",
        "rho": [0.05, 0.1],
        "lr": [0.003, 0.01, 0.03],
        "batch_size": 16,
        "epochs": 6,
        "val_fraction": 0.3,
        "label_smoothing": 0.1,
    }
    common = {"tuned": ["lr"], "seeds": 2, "launch": {"stack": 8}}
    found = {}
    for metric in ("val/top1", "val/loss", "test/top1"):
        goal = "minimize" if metric.endswith("loss") else "maximize"
        name = metric.replace("/", "-")
        spec = write_spec(tmp_path / f"{name}.yaml", parameters, metric={"name": metric, "goal": goal}, **common)
        answer = launch_here(spec, "--store", "store", "--data-dir", "data")
        assert answer.returncode == 0, answer.stdout + answer.stderr
        found[metric] = pull(name, store=str(tmp_path / "store"), cache=tmp_path / "cache")
    assert len(records(tmp_path / "store")) == 24, "the later sweeps are views of the first"

    def choices(metric: str, task: str) -> tuple[list, list]:
        """What was tuned in every cell, and every trial's best epoch."""
        made = found[metric]
        chosen = select(made).cells
        runs = made.runs[made.runs["task"] == task]
        return chosen[chosen["task"] == task]["lr"].tolist(), runs["best_epoch"].tolist()

    for metric in ("val/top1", "val/loss"):
        assert choices(metric, "tests.support.mini_cifar:cifar10") == choices(
            metric, "tests.support.mini_cifar:scrambled10"
        )
        assert not select(found[metric]).on_test
        assert "selected on val" in render(select(found[metric], metric="test/top1"), "markdown")
    assert choices("test/top1", "tests.support.mini_cifar:cifar10") != choices(
        "test/top1", "tests.support.mini_cifar:scrambled10"
    ), "they differ"
    assert select(found["test/top1"]).on_test

    on_test, on_val = (select(found[metric], metric="test/top1") for metric in ("test/top1", "val/top1"))
    for selection, label in ((on_test, "test"), (on_val, "val")):
        assert set(long_table(selection)["selected_on"]) == {label}
    assert "(selected on test)" in run_here("status", "test-top1", "--store", "store").stdout.replace("\n", " ")
    assert "selected on test" not in run_here("status", "val-top1", "--store", "store").stdout


def test_missing_and_damaged_data_are_one_line_and_exit_code_2(
    launch_here: Run, run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "task": "tests.support.mini_cifar:cifar10",
        "model": "mlp",
        "optimizer": "sgd",
        "scheduler": "polyak",
        "epochs": 1,
    }
    spec = write_spec(tmp_path / "one.yaml", {**values, "batch_size": 40})
    settings = [f"{key}={value}" for key, value in values.items()]
    data = tmp_path / "elsewhere"
    for command in (["launch", spec], ["train", *settings, "batch_size=40"]):
        answer = run_here(*command, "--store", "store", "--data-dir", data, "--wandb", "disabled")
        assert answer.returncode == 2
        assert answer.stderr.startswith("error: mini10: neither mini-cifar-10-batches-py/ nor mini-cifar-10-python")
        assert len(answer.stderr.strip().splitlines()) == 1
    assert not records(tmp_path / "store"), "no trial was started"

    mini_cifar.write_archives(data)
    archive = data / "mini-cifar-10-python.tar.gz"
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-7])
    monkeypatch.setenv("POLYSWEEP_DATA", str(data))
    answer = run_here("launch", spec, "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 2 and f"error: {archive}: damaged or truncated" in answer.stderr

    archive.write_bytes(whole)
    answer = launch_here(spec, "--store", "store")
    assert answer.returncode == 0, answer.stderr
    shutil.rmtree(data)
    monkeypatch.delenv("POLYSWEEP_DATA")
    answer = run_here("launch", spec, "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 0 and "nothing to start" in answer.stdout, "a finished sweep needs no data"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "batch_size=81",
            "error: batch_size: 81 is larger than the 80 training images of tests.support.mini_cifar:cifar10",
        ),
        (
            "val_fraction=0.01",
            "error: val_fraction: 0.01 of 80 training images of tests.support.mini_cifar:cifar10 leaves a class",
        ),
        ("precision=tf32", "error: precision: tf32 needs an NVIDIA GPU since Ampere, not this cpu"),
        ("--device=gpu", "error: --device: 'gpu' is not on this machine; expected one of cpu"),
        ("augmentation=mixup", "error: augmentation: Input should be 'none', 'crop+flip' or 'crop+flip+cutout'"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(
    run_here: Run, tmp_path: Path, setting: str, message: str
) -> None:
    mini_cifar.write_archives(tmp_path / "data")
    settings = ["task=tests.support.mini_cifar:cifar10", "model=mlp", "optimizer=sgd", "scheduler=polyak", "epochs=1"]
    small = [] if setting.startswith("batch_size") else ["batch_size=40"]
    answer = run_here("train", *settings, *small, setting, "--store", "store", "--data-dir", "data")
    assert answer.returncode == 2 and answer.stderr.startswith(message), answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
    assert not records(tmp_path / "store")
