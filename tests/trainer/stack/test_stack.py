"""A stack's rows: independent of their neighbours, equal to stacks of one, frozen where they diverge; no host sync."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.loading import load_task
from tests.support.stacks import config, mini_batches, stack_of

MIXED = [
    {"optimizer": "usam", "scheduler": "constant", "rho": 0.1, "seed": 0},
    {"optimizer": "sam", "scheduler": "constant", "rho": 0.05, "seed": 1},
    {"optimizer": "usam", "scheduler": "cosine", "rho": 0.4, "seed": 0, "weight_decay": 0.0},
    {"optimizer": "sam", "scheduler": "polyak", "rho": 0.2, "seed": 2},
    {"optimizer": "usam", "scheduler": "polyak", "rho": 0.3, "seed": 1, "momentum": 0.5},
    {"optimizer": "usam", "scheduler": "polyak", "rho": 0.0, "seed": 3, "gamma_b": 0.1},
    {"optimizer": "sam", "scheduler": "cosine", "rho": 0.1, "seed": 4, "label_smoothing": 0.1},
    {"optimizer": "usam", "scheduler": "constant", "rho": 0.2, "seed": 5, "rho_schedule": "inverse_sqrt"},
]


def mixed(precision: str = "float64", model: str = "resnet8") -> list:
    return [config(**row, precision=precision, model=model) for row in MIXED]


def run(stack: Stack, steps: int, poison: Callable[[Tensor, Tensor], None] | None = None) -> None:
    for _, step, images, labels in mini_batches(stack):
        if step == steps:
            break
        if poison:
            poison(step, images)
        stack.step(images, labels, step)


def same(a: Stack, b: Stack, rows_a: list[int], rows_b: list[int]) -> bool:
    pairs = [
        (a.theta, b.theta),
        (a.buffers.floats, b.buffers.floats),
        (a.buffers.counters, b.buffers.counters),
    ]
    return all(torch.equal(x[rows_a], y[rows_b]) for x, y in pairs)


@pytest.mark.parametrize("model", ["mlp", pytest.param("resnet8", marks=pytest.mark.long)])
def test_a_mixed_stack_of_eight_agrees_with_eight_stacks_of_one(model: str) -> None:
    rows = mixed(model=model)
    stack = stack_of(*rows)
    run(stack, 12)
    for index, row in enumerate(rows):
        alone = stack_of(row)
        run(alone, 12)
        assert (stack.theta[index] - alone.theta[0]).abs().max() < 1e-10
        torch.testing.assert_close(stack.buffers.floats[index], alone.buffers.floats[0], rtol=0, atol=1e-10)
        assert torch.equal(stack.buffers.counters[index], alone.buffers.counters[0])


@pytest.mark.parametrize("model", ["mlp", "resnet8"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_row_does_not_depend_on_its_neighbours_or_their_order(model: str, precision: str) -> None:
    rows = mixed(precision, model)[:4]
    others = mixed(precision, model)[4:]
    stack = stack_of(*rows)
    permuted = stack_of(*reversed(rows))
    among_others = stack_of(rows[0], *others[:3])
    for each in (stack, permuted, among_others):
        run(each, 8)
    assert same(stack, permuted, [0, 1, 2, 3], [3, 2, 1, 0])
    assert same(stack, among_others, [0], [0])


POISONS = {"nan": float("nan"), "infinity": float("inf"), "overflow": 1e38}


@pytest.mark.parametrize("kind", list(POISONS))
@pytest.mark.parametrize("which", ["first", "second"])
@pytest.mark.parametrize("model", ["mlp", "resnet8"])
def test_divergence_in_one_row_leaves_the_others_untouched(kind: str, which: str, model: str) -> None:
    """Row 1 is poisoned at step 3: in the first pass through its images, in the second through its gradient step."""
    rows = [config(rho=0.1 + 0.1 * i, seed=i, model=model) for i in range(4)]
    clean, hit = stack_of(*rows), stack_of(*rows)
    at_step: dict[str, Tensor] = {}

    def poison(step: Tensor, images: Tensor) -> None:
        if step != 3:
            return
        at_step.update(
            theta=hit.theta.clone(), floats=hit.buffers.floats.clone(), counters=hit.buffers.counters.clone()
        )
        if which == "first":
            images[1] = POISONS[kind]
        else:
            hit._optimizer._rho[1] = {"nan": float("nan"), "infinity": float("inf"), "overflow": 1e38}[kind]

    run(clean, 8)
    run(hit, 8, poison)
    assert hit.active.tolist() == [True, False, True, True]
    assert same(clean, hit, [0, 2, 3], [0, 2, 3])
    assert torch.equal(hit.theta[1], at_step["theta"][1])
    assert torch.equal(hit.buffers.floats[1], at_step["floats"][1])
    assert torch.equal(hit.buffers.counters[1], at_step["counters"][1])


def test_an_update_that_overflows_freezes_the_row() -> None:
    stack = stack_of(config(model="mlp", scheduler="constant", optimizer="sgd", lr=3e38))
    stack.theta *= 100  # so that the gradient is long enough to overflow the first update
    before = stack.theta.clone()
    run(stack, 3)
    assert not stack.active.any()
    assert torch.isfinite(stack.theta).all()
    assert torch.equal(stack.theta, before)


def test_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    run(stack_of(config()), 2)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("scheduler", ["constant", "cosine", "polyak"])
def test_a_step_never_asks_the_device_for_a_value(width: int, scheduler: str) -> None:
    """On the meta device there are no values: whatever would wait for one raises."""
    changes = {"momentum": 0.9, "label_smoothing": 0.1, "rho_schedule": "inverse", "batchnorm_statistics": "first"}
    rows = [config(scheduler=scheduler, seed=n, optimizer=("usam", "sam")[n], **changes) for n in range(width)]
    stack = Stack(rows, load_task(rows[0]), "meta")
    runner = EpochRunner(stack)
    runner._augments = True  # digits are not augmented: crops and flips are to be seen here too
    before = stack.theta
    runner.rehearse(64)
    assert stack.theta.is_meta and stack.theta is not before
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(stack.active.any())
