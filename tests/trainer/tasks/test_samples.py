"""Arrays of any shape as samples, and their split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from polysweep.trainer.errors import ConfigError
from polysweep.trainer.tasks.samples import Samples, hold_out, train_val_test

X, Y = np.arange(200.0).reshape(100, 2), np.arange(100) % 4


def indices(samples: Samples | None) -> list[int]:
    assert samples is not None and samples.rows is not None
    return samples.rows.tolist()


@pytest.mark.parametrize("targets", [Y, Y.astype(float), Y > 1])
def test_every_sample_is_in_one_set_and_the_same_in_every_call(targets: np.ndarray) -> None:
    train, val, test = split = train_val_test(X, targets, 0.25)
    assert [len(train), len(val or ()), len(test)] == [60, 20, 20]
    assert sorted(indices(train) + indices(val) + indices(test)) == list(range(100))
    assert all(torch.equal(a.rows, b.rows) for a, b in zip(split, train_val_test(X, targets, 0.25), strict=True))
    assert indices(train_val_test(X, targets, 0.5)[2]) == indices(test), "the test set does not depend on val_fraction"
    if targets.dtype != float:
        shares = [one.targets[one.rows].bincount().tolist() for one in split]
        assert all(len(set(counts)) == 1 for counts in shares), "each class gives its share"


def test_inputs_are_standardised_by_the_training_set_alone() -> None:
    constant = np.column_stack([X, np.full(100, 7.0)])
    train, _, test = train_val_test(constant, Y)
    used = train.inputs[train.rows]
    torch.testing.assert_close(used.mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(used[:, :2].std(0, correction=0), torch.ones(2, dtype=torch.float64))
    assert not used[:, 2].any(), "a constant feature"
    mean, std = X[indices(train)].mean(0), X[indices(train)].std(0)
    np.testing.assert_allclose(test.inputs[test.rows][:, :2], (X[indices(test)] - mean) / std)
    assert torch.equal(train_val_test(X, Y, standardise=False).train.inputs, torch.from_numpy(X))


def test_frames_and_tensors_are_as_arrays() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": Y > 0})
    expected = train_val_test(np.column_stack([X, Y > 0]), Y).train
    for inputs, targets in (
        (frame.astype(float), pd.Series(Y)),
        (torch.tensor(frame.astype(float).values), Y.tolist()),
    ):
        train = train_val_test(inputs, targets).train
        assert torch.equal(train.inputs, expected.inputs) and torch.equal(train.targets, expected.targets)


@pytest.mark.parametrize(
    ("inputs", "targets", "options", "reason"),
    [
        (X, Y[:-1], {}, "100 inputs, but 99 targets"),
        (X, np.array(["a"] * 100), {}, "targets are of type <U1; expected an array of numbers"),
        (pd.DataFrame({"a": ["x"] * 100}), Y, {}, "inputs are of type object; expected an array of numbers"),
        (3.0, Y, {}, "inputs are a single number"),
        (X, Y, {"test_fraction": 1.5}, "test_fraction: 1.5; expected a number between 0 and 1"),
        (X, Y, {"test_fraction": 0.001}, "holding out 0 of 100 samples leaves a set empty"),
        (X, Y, {"val_fraction": 0.02}, "holding out 2 of 80 samples empties class"),
    ],
)
def test_what_cannot_be_split_is_refused(inputs: Any, targets: Any, options: dict[str, float], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        train_val_test(inputs, targets, **options)
    assert reason in str(caught.value)


def test_floats_are_held_out_without_classes() -> None:
    kept, held_out = hold_out(torch.arange(10), torch.rand(10), 0.3)
    assert held_out is not None and sorted([*kept.tolist(), *held_out.tolist()]) == list(range(10))
    assert len(held_out) == 3
