"""What a user's own parts do in a step: tried before anything is claimed, stacked where vmap takes them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from polysweep.sweeps.job import Job
from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.rehearsal import refusal, rehearse
from tests.support.lab import lab as lab
from tests.support.lab import own
from tests.support.project import TINY
from tests.support.results import records

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model=steps:nothing", "error: model: 'steps:nothing' gives a NoneType, expected a torch.nn.Module"),
        (
            "model=steps:too_few",
            "error: model: 'steps:too_few' gives logits (8, 9), expected (images, classes) = (8, 10)",
        ),
        (
            "model=steps:wide",
            "error: model: a step with model 'steps:wide' fails: TypeError: wide() missing 1 required",
        ),
        (
            "scheduler=steps:Flat",
            "error: scheduler: a step with scheduler 'steps:Flat' fails: ValueError: state 'steps",
        ),
        (
            "optimizer=steps:Raising",
            "error: optimizer: a step with optimizer 'steps:Raising' fails: KeyError: 'nothing",
        ),
        (
            "task=steps:a_dict",
            "error: task: 'steps:a_dict' gives a dict, expected a polysweep.Classification",
        ),
        ("task=steps:floats", "error: task: 'steps:floats': train has to be Images of shape (N, H, W, C) in uint8"),
        ("task=steps:beyond", "error: task: 'steps:beyond': the labels of train are 0 to 10, expected 0 to 9"),
        ("task=steps:exits", "error: task: a step with task 'steps:exits' fails: SystemExit: 0"),
        ("task=steps:miscounted", "error: task: 'steps:miscounted' declares a train_size of 9, it has 8 training"),
    ],
)
def test_a_part_that_fails_in_a_step_is_named_with_the_reason(lab: Path, setting: str, message: str) -> None:
    key, _, value = setting.partition("=")
    values = {"task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "polyak", "epochs": 1, "batch_size": 8}
    with pytest.raises(ConfigError) as raised:
        rehearse(TrialConfig.parse({**values, key: value}))
    assert f"error: {raised.value}".startswith(message)


def test_a_part_that_fails_is_found_before_anything_is_claimed(lab: Path, run: Run) -> None:
    settings = ["task=digits", "model=steps:too_few", "optimizer=sgd", "scheduler=polyak", "epochs=1"]
    answer = run("train", *settings, "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 2 and answer.stderr.startswith("error: model: 'steps:too_few' gives logits (8, 9)")
    assert len(answer.stderr.strip().splitlines()) == 1
    assert not records(lab / "store")


def test_an_exit_in_the_middle_of_training_is_a_failure(lab: Path, run: Run) -> None:
    values = {**TINY, "scheduler": "steps:Leaves"}
    answer = run("train", *[f"{k}={v}" for k, v in values.items()], "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 1
    (record,) = records(lab / "store").values()
    assert (record["outcome"], record["epoch"]) == ("failed", 1) and "SystemExit" in record["error"]
    assert "epoch 1/3" in answer.stdout and "epoch 2/3" not in answer.stdout


def test_a_layer_that_does_not_know_bfloat16_is_found_before_anything_is_claimed(lab: Path) -> None:
    values = {**TINY, "model": "steps:Grouped"}
    rehearse(TrialConfig.parse(values))
    with pytest.raises(ConfigError, match="bfloat16 is not for a GroupNorm, which model 'steps:Grouped' has"):
        rehearse(TrialConfig.parse({**values, "precision": "bfloat16"}))


def spec_of(lab: Path, model: str, stack: int) -> SweepSpec:
    values = {**TINY, "model": model, "epochs": 2}
    text = json.dumps(
        {"parameters": {k: {"value": v} for k, v in values.items()}, "seeds": 5, "launch": {"stack": stack}}
    )
    return SweepSpec.parse(text, "spec")


def test_a_model_that_vmap_refuses_is_planned_alone_and_the_plan_says_so(lab: Path) -> None:
    made = plan(spec_of(lab, "broken:Looks", 4), {})
    assert [stack.width for stack in made.stacks] == [1] * 5
    (note,) = made.notes
    assert note.startswith("model 'broken:Looks' cannot be stacked (RuntimeError: vmap:") and note.endswith("K = 1")
    assert refusal(own(model="my_lab.nets:convnet")) == ""


@pytest.mark.long
def test_a_launch_of_a_model_that_vmap_refuses_says_so_and_ends(lab: Path, run: Run, run_here: Run) -> None:
    values = {**TINY, "model": "broken:Looks", "epochs": 1}
    path = lab / "looks.yaml"
    path.write_text(json.dumps({"parameters": {k: {"value": v} for k, v in values.items()}, "launch": {"stack": 4}}))
    answer = run("launch", path, "--store", "store", "--wandb", "disabled")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "warning: model 'broken:Looks' cannot be stacked" in answer.stderr
    assert "cannot be stacked" in run_here("plan", path, "--store", "other").stderr


def test_out_of_memory_halves_k_for_trials_that_have_not_started(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polysweep.trainer import train as train_module

    real = train_module.EpochRunner.run

    def hungry(self: train_module.EpochRunner, *arguments: object) -> object:
        if self._stack.width > 2:
            raise torch.OutOfMemoryError("out of memory")
        return real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(train_module.EpochRunner, "run", hungry)
    from polysweep.sweeps.worker import stack_run as worker

    monkeypatch.setattr(worker, "_too_wide", {})
    spec, store = spec_of(lab, "broken:hungry", 8), Store(str(tmp_path / "store"))
    tried = []
    for _ in range(4):
        stacks = plan(spec, store.states(spec)).stacks
        for stack in stacks:
            tried.append(stack.width)
            job = Job(store.root, tuple(t.config.canonical() for t in stack.trials), stack.width, stack.epoch)
            run = StackRun(job)
            while run.advance() is not None and not run.is_over:
                pass
            run.close()
    assert tried == [8, 4, 4, 2, 2, 2]
    for record in records(tmp_path / "store").values():
        assert (record["outcome"], record["width"]) == ("finished", 2)
        assert record["notes"] == ["out of memory at K = 8: starts at K = 4", "out of memory at K = 4: starts at K = 2"]


def test_out_of_memory_of_a_trial_that_has_started_changes_nothing_of_it(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polysweep.trainer import train as train_module

    spec, store = spec_of(lab, "broken:hungry", 2), Store(str(tmp_path / "store"))
    (stack, *_) = plan(spec, store.states(spec)).stacks
    job = Job(store.root, tuple(t.config.canonical() for t in stack.trials), stack.width, stack.epoch)
    run = StackRun(job)
    assert run.advance() is not None

    def hungry(*_: object) -> object:
        raise torch.OutOfMemoryError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(train_module.EpochRunner, "run", hungry)
        with pytest.raises(torch.OutOfMemoryError):
            run.advance()
    run.close()
    states = [store.state(trial.trial_id) for trial in stack.trials]
    assert {(state.state, state.width, state.epoch) for state in states} == {("interrupted", 2, 1)}
    notes = {note for record in records(tmp_path / "store").values() for note in record["notes"]}
    assert notes == {"out of memory at K = 2, which a trial keeps from its first epoch on"}
