"""Regression, own losses and metrics: against plain torch and scikit-learn, at every K."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, r2_score
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.history import HISTORY_COLUMNS
from polysweep.trainer.rehearsal import refusal, rehearse
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.tasks.supervised import r_squared
from polysweep.trainer.train import train
from tests.support.lab import lab as lab
from tests.support.lab import own
from tests.support.training import by_row

OWN = """
import torch
from torch.nn import functional as F
from polysweep import Classification, Regression, Samples, Supervised, declare, train_val_test

def wave(n=90, d=3):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(1))
    return x, x.sin().sum(1) + 1

@declare(metrics={"mae": "minimize", "r2": "maximize"}, input_shape=(3,), train_size=72)
def curve(data, val_fraction):
    return Regression(*train_val_test(*wave(), val_fraction))

@declare(metrics={"mae": "minimize"})
def planes(data, val_fraction):
    x, y = wave()
    return Regression(*train_val_test(x.view(-1, 3, 1), torch.stack([y, -y], 1), val_fraction), loss=F.huber_loss)

@declare(metrics={"within": "maximize"})
def counts(data, val_fraction):
    x, y = wave()
    def loss(outputs, targets):  # of every sample: its mean is taken
        return outputs[:, 0].exp() - targets * outputs[:, 0]
    def within(outputs, targets):
        return ((outputs[:, 0].exp() - targets).abs() < 1).double().mean()
    split = train_val_test(x, y.abs().round(), val_fraction)
    return Supervised(*split, loss=loss, outputs=1, metrics={"within": within})

@declare(metrics={})
def looks(data, val_fraction):
    def loss(outputs, targets):
        if outputs.mean() > 1e9: raise AssertionError
        return outputs.square().mean()
    return Supervised(*train_val_test(*wave(), val_fraction), loss=loss)

@declare(classes=2, metrics={"top1": "maximize", "recall": "maximize"})
def halves(data, val_fraction):
    x, y = wave()
    def recall(logits, labels):
        return (logits.argmax(1) == labels)[labels == 1].double().mean()
    return Classification(*train_val_test(x, y > 1, val_fraction), classes=2, metrics={"recall": recall})

@declare(metrics={"of_each": "minimize"})
def not_a_number(data, val_fraction):
    return Regression(*train_val_test(*wave(), val_fraction), metrics={"of_each": lambda o, t: o - t})

@declare(metrics={"rmse": "minimize"})
def undeclared(data, val_fraction):
    return Regression(*train_val_test(*wave(), val_fraction))

def undeclared_at_all(data, val_fraction):
    return Regression(*train_val_test(*wave(), val_fraction))

@declare(metrics={"mae": "minimize"}, input_shape=(4,))
def misshapen(data, val_fraction):
    return Regression(*train_val_test(*wave(), val_fraction))

@declare(metrics={"mae": "minimize"})
def broken(data, val_fraction):
    x, y = wave()
    x[7, 1] = torch.nan
    return Regression(Samples(x, y), None, Samples(x, y))

@declare(metrics={"mae": "minimize"})
def bytes_of(data, val_fraction):
    x, y = wave()
    return Regression(Samples(x.to(torch.uint8), y), None, Samples(x, y))

@declare(metrics={"mae": "minimize"})
def other_shape(data, val_fraction):
    x, y = wave()
    return Regression(Samples(x, y), None, Samples(x[:, :2], y))

def no_sets(data, val_fraction):
    return Classification(3, None, 3, classes=2)

@declare(classes=2)
def float_labels(data, val_fraction):
    x, y = wave()
    return Classification(Samples(x, y), None, Samples(x, y), classes=2)

def two_outputs(input_shape, classes):
    return torch.nn.Linear(3, 2)
"""


@pytest.fixture
def tasks(lab: Path) -> Path:
    (lab / "steps.py").write_text(OWN)  # a name that the lab forgets
    return lab


def mine(task: str, **changes: object) -> TrialConfig:
    values = {"model": "mlp", "model_options": {"hidden": 8}, "epochs": 2, "batch_size": 32, "seed": 0}
    return own(task=f"steps:{task}", **{**values, **changes})


def test_a_regression_is_trained_as_by_plain_torch(tasks: Path) -> None:
    config = mine("curve", optimizer="sgd", scheduler="constant", lr=0.1, rho=None, precision="float64")
    (rows,) = zip(*[by_row([reports], 0) for reports in train([config])], strict=True)
    task = load_task(config)
    from polysweep.trainer.stack.stack import Stack

    module = Stack([config], task)._oracle._module.double()  # initialised as the trial is
    module.train()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for epoch in (1, 2):
        losses = []
        for at in task.order([0], epoch, 32)[0].split(32):
            inputs, targets = task.mini_batch(at[None], None, None)
            loss = F.mse_loss(module(inputs[0]).squeeze(1), targets[0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert rows[epoch - 1]["train/loss"] == pytest.approx(np.mean(losses), rel=1e-12)
    with torch.no_grad():
        outputs = module(task.test.inputs[task.test.rows]).squeeze(1).numpy()
    expected = task.test.targets[task.test.rows].numpy()
    assert rows[1]["test/loss"] == pytest.approx(((outputs - expected) ** 2).mean(), rel=1e-12)
    assert rows[1]["test/mae"] == pytest.approx(mean_absolute_error(expected, outputs), rel=1e-12)
    assert rows[1]["test/r2"] == pytest.approx(r2_score(expected, outputs), rel=1e-12)
    assert rows[1]["val/mae"] is None and rows[1]["test/top1"] is None
    assert tuple(rows[1]) == (*(n for n in HISTORY_COLUMNS if n not in ("images_per_second", "seconds")), "val/mae",
                              "val/r2", "test/mae", "test/r2")  # fmt: skip


@pytest.mark.parametrize("task", ["curve", "planes", "counts", "halves"])
def test_a_stack_has_the_numbers_of_stacks_of_one(tasks: Path, task: str) -> None:
    rows = [mine(task, seed=seed, val_fraction=0.25, optimizer="sam") for seed in (0, 1)]
    together = list(train(rows))
    assert refusal(rows[0]) == ""
    for row, config in enumerate(rows):
        rehearse(config)
        for in_stack, alone in zip(by_row(together, row), by_row(list(train([config])), 0), strict=True):
            assert {**in_stack} == {
                name: value if value is None else pytest.approx(value, rel=1e-4, abs=1e-5)
                for name, value in alone.items()
            }
            assert in_stack["val/loss"] is not None
    first = next(train(rows))
    rest = train(rows, checkpoints=[report.checkpoint() for report in first])
    assert by_row([first, *rest], 0) == by_row(together, 0), "resumed bitwise"


def test_a_loss_that_vmap_refuses_is_trained_alone(tasks: Path) -> None:
    config = mine("looks")
    rehearse(config)
    assert refusal(config).startswith("task 'steps:looks' cannot be stacked (RuntimeError: vmap: ")


def test_the_share_of_explained_variance_is_not_defined_for_equal_targets() -> None:
    assert math.isnan(r_squared(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0])))
    assert r_squared(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 3.0])) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task": "not_a_number"}, "metric 'of_each' gives a tensor of shape (8,), expected one number"),
        ({"task": "undeclared"}, "declares the metric 'rmse' (by default top1, top5, ece), it measures 'mae', 'r2'"),
        ({"task": "undeclared_at_all"}, "declares the metric 'top1' (by default top1, top5, ece), it measures 'mae'"),
        ({"task": "misshapen"}, "declares an input_shape of (4,), it is (3,)"),
        ({"task": "broken"}, "'steps:broken': the inputs of train are not all finite: the first is that of sample 7"),
        ({"task": "bytes_of"}, "the inputs of train are torch.uint8; expected floats, or int64 for indices"),
        ({"task": "other_shape"}, "the inputs of test have shape (2,), those of train (3,)"),
        ({"task": "no_sets"}, "'steps:no_sets': train is a int, expected polysweep.Samples or Images"),
        ({"task": "float_labels"}, "the labels of train have to be int64, one per sample"),
        ({"task": "curve", "model": "steps:two_outputs"}, "it gives outputs (8, 2) for targets (8,) of a mini-batch"),
    ],
)
def test_a_task_that_does_not_fit_is_refused_with_the_reason(tasks: Path, changes: dict[str, str], reason: str) -> None:
    options = None if "model" in changes else {"hidden": 8}
    with pytest.raises(ConfigError) as caught:
        rehearse(mine(**{"model_options": options, **changes}))
    assert reason in str(caught.value)


def test_augmentation_is_for_images(tasks: Path) -> None:
    from polysweep.trainer.components.plugins import component

    with pytest.raises(ConfigError, match="does not use it"):
        mine("halves", augmentation="crop+flip")
    assert component("task", "steps:halves").directions == {"top1": "maximize", "recall": "maximize"}
    task = load_task(mine("halves"))
    with pytest.raises(ConfigError, match=r"'crop\+flip' is for a task of polysweep.Images"):
        task.mini_batch(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, 5), "crop+flip")
