"""Other people's optimizers as they are, in each style: beside ours, resumed, diverged, refused."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from polysweep.trainer.checkpoint import dumps, loads
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.rehearsal import refusal, rehearse
from polysweep.trainer.train import Report, train
from tests.support.project import TINY
from tests.support.recorder import Recorder
from tests.support.results import records
from tests.support.stacks import mini_batches, stack_of
from tests.support.training import by_row

SAM_SPS = "sam_sps:SAM_SPS"
THEIRS = "tests.support.theirs"
CONVEX = {"model_options": {"layers": 0}}  # softmax regression: rounding does not grow


def config(optimizer: str, **changes: Any) -> TrialConfig:
    scheduler = {} if "scheduler" in changes else {"scheduler": "constant", "lr": 0.05}
    values = {**TINY, "rho": None, "optimizer": optimizer, **scheduler, **changes}
    return TrialConfig.parse({key: value for key, value in values.items() if value is not None})


def after(one: TrialConfig, steps: int) -> torch.Tensor:
    stack = stack_of(one)
    for _, step, images, labels in itertools.islice(mini_batches(stack, epochs=one.epochs), steps):
        stack.step(images, labels, step)
    return stack.theta[0]


def trained(one: TrialConfig, **options: Any) -> list[Report]:
    return [reports[0] for reports in train([one], **options)]


PUBLISHED = {"scheduler": "own", "rho": 0.1, "weight_decay": 5e-4, "gamma_b": 0.8, "precision": "float64"}
OURS = {**PUBLISHED, "scheduler": "polyak"}
PAIRS: dict[str, tuple[TrialConfig, TrialConfig]] = {
    "USAM with Polyak steps, by its authors": (
        config(SAM_SPS, **PUBLISHED, optimizer_options={"lambd": 0.0}, **CONVEX),
        config("usam", **OURS, **CONVEX),
    ),
    "SAM with Polyak steps, by its authors": (config(SAM_SPS, **PUBLISHED, **CONVEX), config("sam", **OURS, **CONVEX)),
    "Adam": (
        config("torch.optim:Adam", weight_decay=1e-3, optimizer_options={"betas": [0.8, 0.99]}, precision="float64"),
        config("adam", weight_decay=1e-3, optimizer_options={"beta1": 0.8, "beta2": 0.99}, precision="float64"),
    ),
    "momentum, by a closure": (
        config(f"{THEIRS}:CLOSURE_SGD", momentum=0.9, scheduler="cosine", lr=0.1, precision="float64"),
        config("sgd", momentum=0.9, scheduler="cosine", lr=0.1, precision="float64"),
    ),
    "SAM in two steps, on SGD": (
        config(f"{THEIRS}:SAM", rho=0.1, momentum=0.9, weight_decay=5e-4, precision="float64", **CONVEX),
        config("sam", rho=0.1, momentum=0.9, weight_decay=5e-4, precision="float64", **CONVEX),
    ),
    "SAM in two steps, on AdamW": (
        config(f"{THEIRS}:SAM_ADAMW", rho=0.1, weight_decay=0.1, precision="float64", **CONVEX),
        config("sam", rho=0.1, base="adamw", weight_decay=0.1, precision="float64", **CONVEX),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_a_wrapped_optimizer_takes_the_steps_of_ours(name: str) -> None:
    """18 steps, in float64; sam-sps adds up in float32."""
    theirs, ours = PAIRS[name]
    tolerance = 1e-5 if "authors" in name else 1e-11
    assert (after(theirs, 18) - after(ours, 18)).abs().max() < tolerance


@pytest.mark.parametrize("name", list(PAIRS)[:2])
def test_a_training_with_the_published_class_has_the_history_of_ours(name: str) -> None:
    theirs, ours = ([report.history for report in trained(one)] for one in PAIRS[name])
    for mine, other in zip(ours, theirs, strict=True):
        assert other.keys() == mine.keys()
        for column, value in mine.items():
            if column not in ("seconds", "images_per_second"):
                assert other[column] == (None if value is None else pytest.approx(value, rel=1e-4)), column


RESUMED = {
    **{name: theirs for name, (theirs, _) in PAIRS.items()},
    "L-BFGS": config("torch.optim:LBFGS", optimizer_options={"max_iter": 2}),
    "a count in an attribute": config(
        f"{THEIRS}:Slowing", scheduler="own", weight_decay=0.01, optimizer_options={"start": 0.1}
    ),
    "no torch class": config(f"{THEIRS}:PLAIN", scheduler="own"),
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_training_is_bitwise_the_uninterrupted_one(name: str) -> None:
    """From a checkpoint as it is stored, taken after the training had gone on."""
    whole = trained(RESUMED[name])
    resumed = trained(RESUMED[name], checkpoints=[loads(dumps(whole[0].checkpoint()))])
    assert [r.history["train/loss"] for r in resumed] == [r.history["train/loss"] for r in whole[1:]]
    ours, again = whole[-1].checkpoint()["row"], resumed[-1].checkpoint()["row"]
    assert ours.keys() == again.keys() and all(torch.equal(tensor, again[name]) for name, tensor in ours.items())


def test_its_step_size_is_reported_where_it_has_one() -> None:
    slowing = trained(RESUMED["a count in an attribute"])[0].history
    assert slowing["gamma/max"] == pytest.approx(0.1) and slowing["gamma/min"] == pytest.approx(0.1 / 6**0.5)
    assert slowing["gamma/cap_share"] is None, "whether a cap was reached is not known"
    nameless = trained(RESUMED["no torch class"])[0].history
    assert [nameless[f"gamma/{one}"] for one in ("mean", "min", "max", "zero_share")] == [None, None, None, 0.0]
    assert trained(config(f"{THEIRS}:RENAMED", scheduler="own", gamma_b=0.1))[0].history["gamma/cap_share"] == 1 / 6


def test_it_diverges_as_any_row_and_is_never_captured() -> None:
    recorder = Recorder()
    (report,) = trained(config("torch.optim:SGD", lr=1e30, scheduler="constant"), capture=recorder)
    assert report.outcome == "diverged" and recorder.captures == 0
    assert all(tensor.isfinite().all() for tensor in (report.checkpoint()["row"]["theta"],))


def test_a_captured_run_is_the_eager_one() -> None:
    """On a GPU a training is captured unless it says that it cannot be."""
    one = PAIRS["Adam"][0]
    eager, captured = list(train([one])), list(train([one], capture=Recorder()))
    assert by_row(eager, 0) == by_row(captured, 0)


def test_it_is_trained_on_a_convex_task_too() -> None:
    values = {"task": "ridge", "model": "linear", "rho": 0.1, "scheduler": "own", "batch_size": 100, "epochs": 20}
    theirs = TrialConfig.parse({**values, "optimizer": SAM_SPS, "optimizer_options": {"lambd": 0.0}})
    ours = TrialConfig.parse({**values, "optimizer": "usam", "scheduler": "polyak"})
    a, b = (trained(one)[-1].history for one in (theirs, ours))
    assert a["distance"] == pytest.approx(b["distance"], rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": SAM_SPS, "scheduler": "constant", "lr": 0.1, "rho": 0.1}, "expected one of own"),
        ({"optimizer": "torch.optim:SGD", "scheduler": "own"}, "expected one of constant, cosine, multistep"),
        ({"optimizer": "torch.optim:SGD", "scheduler": "polyak"}, "derived for a step along the gradient"),
        ({"optimizer": "sgd", "scheduler": "own"}, "optimizer 'sgd' needs another one"),
        ({"optimizer": "torch.optim:SGD", "optimizer_options": {"nesterof": True}}, "has no option 'nesterof'"),
        ({"optimizer": "torch.optim:SGD", "rho": 0.1}, "rho: "),
        ({"optimizer": f"{THEIRS}:PLAIN", "scheduler": "own", "weight_decay": 0.1}, "weight_decay: optimizer"),
        ({"optimizer": f"{THEIRS}:Slowing", "scheduler": "own"}, "optimizer_options.start: missing"),
        ({"optimizer": f"{THEIRS}:TwoSteps"}, "polysweep.wrap(TwoSteps, base_optimizer=...)"),
        ({"optimizer": f"{THEIRS}:Asks"}, "Asks.step() needs batch; closure and loss are known"),
        ({"optimizer": f"{THEIRS}:WRONG_FIELD"}, "fields=...): did you mean 'gamma_b'"),
        ({"optimizer": f"{THEIRS}:WRONG_ARGUMENT"}, "Slowing takes no 'radius'; expected one of powers, start"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    scheduler = {} if "scheduler" in changes else {"scheduler": "constant", "lr": 0.1}
    with pytest.raises(ConfigError) as caught:
        config(**{**scheduler, **changes})
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": f"{THEIRS}:Fails"}, "Fails cannot be made: no lr is good, 0.05 neither"),
        ({"optimizer": f"{THEIRS}:Keeps"}, "its state.thing is a object, which a checkpoint cannot hold"),
        ({"optimizer": "torch.optim:SGD", "optimizer_options": {"nesterov": True}}, "Nesterov momentum requires"),
        ({"optimizer": "torch.optim:Adam", "optimizer_options": {"betas": [0.9, 2]}}, "Invalid beta parameter"),
        ({"optimizer": "torch.optim:SparseAdam"}, "does not support dense gradients"),
    ],
)
def test_what_fails_is_found_by_the_rehearsal(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"^optimizer: ") as caught:
        rehearse(config(**changes))
    assert message in str(caught.value)


def test_a_version_is_part_of_the_id() -> None:
    assert config(f"{THEIRS}:CLOSURE_SGD").versions == {"optimizer": 3}
    assert config("torch.optim:SGD").versions == {"optimizer": 1}


def test_a_spec_compares_a_published_class_with_ours(
    tmp_path: Path, launch_here: Callable[..., subprocess.CompletedProcess[str]],
    run_here: Callable[..., subprocess.CompletedProcess[str]],
) -> None:  # fmt: skip
    """With two seeds a point, as one stack of two each if they could be stacked; `plan` says that they cannot."""
    (tmp_path / "both.yaml").write_text("""
parameters: {task: {value: digits}, model: {value: mlp}, rho: {value: 0.1}, epochs: {value: 2}}
variants:
  - {optimizer: {value: "sam_sps:SAM_SPS"}, scheduler: {value: own}}
  - {optimizer: {value: sam}, scheduler: {value: polyak}}
seeds: 2
launch: {stack: 2}
""")
    reason = "optimizer 'sam_sps:SAM_SPS' updates one model at a time"
    assert reason in refusal(config(SAM_SPS, scheduler="own", rho=0.1))
    assert reason in run_here("plan", "both.yaml", "--store", "store").stderr
    answer = launch_here("both.yaml", "--store", "store")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert sorted(record["width"] for record in records(tmp_path / "store").values()) == [1, 1, 2, 2]
