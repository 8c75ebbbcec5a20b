"""A stack's rows: independent of their neighbours, equal to stacks of one, frozen where they diverge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional as F

from polysweep.trainer.errors import ConfigError
from polysweep.trainer.models import resnet20, resnet32
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.streams import epoch_order
from polysweep.trainer.tasks.digits import digits
from polysweep.trainer.tasks.images import Images
from tests.support.stacks import config, flat_buffers, load, mini_batches, plain_module, stack_of

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


def test_a_stack_of_one_has_bitwise_the_gradients_and_statistics_of_the_plain_module() -> None:
    stack = stack_of(config(optimizer="sgd", scheduler="constant"))
    module = plain_module(stack)
    load(module, stack)
    _, step, images, labels = next(mini_batches(stack))
    loss = F.cross_entropy(module(images[0]), labels[0])
    grads = torch.autograd.grad(loss, list(module.parameters()))
    done = stack.step(images, labels, step)
    assert torch.equal(done.result.x.grad[0], torch.cat([g.reshape(-1) for g in grads]))
    assert torch.equal(stack.buffers.floats[0], flat_buffers(module))


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


def test_paired_seeds_share_weights_and_batches_whatever_else_differs() -> None:
    rows = [config(rho=r, optimizer=o, weight_decay=w) for r, o, w in [(0.1, "usam", 0), (0.4, "sam", 1e-3)]]
    stack = stack_of(*rows, config(seed=1))
    assert torch.equal(stack.theta[0], stack.theta[1])
    assert not torch.equal(stack.theta[0], stack.theta[2])
    order = epoch_order([0, 0, 1], 5, 100)
    assert torch.equal(order[0], order[1])
    assert not torch.equal(order[0], order[2])
    assert sorted(order[2].tolist()) == list(range(100))
    assert not torch.equal(epoch_order([0], 6, 100)[0], order[0])


def test_initialisation_and_order_are_pinned() -> None:
    """They are part of what `NUMERICS` promises."""
    stack = stack_of(config())
    assert epoch_order([0], 1, 1437)[0, :5].tolist() == [912, 457, 193, 673, 695]
    torch.testing.assert_close(
        stack.theta[0, :3],
        torch.tensor([-0.8167201280593872, 0.8087064623832703, 0.5709396600723267]),
        rtol=0,
        atol=1e-7,
    )


def test_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    run(stack_of(config()), 2)
    assert torch.equal(torch.rand(1), expected)


def test_the_papers_models_have_the_papers_sizes() -> None:
    """He et al. 2016, table 6: 0.27 M and 0.46 M."""
    counts = [sum(p.numel() for p in build((3, 32, 32), 10).parameters()) for build in (resnet20, resnet32)]
    assert counts == [269_722, 464_154]
    assert resnet20((3, 32, 32), 100)(torch.zeros(2, 3, 32, 32)).shape == (2, 100)


def whole(data: Images) -> tuple[Tensor, Tensor]:
    """All images and labels of a set."""
    ((images, labels),) = data.chunks(len(data))
    return images, labels


def test_digits_are_scikit_learns() -> None:
    task, bunch = digits(Path(), 0.0), load_digits()
    (train, _), (test, labels) = whole(task.train), whole(task.test)
    assert sorted(map(bytes, torch.cat([train, test]).numpy())) == sorted(
        image.tobytes() for image in bunch.images.astype("uint8")
    )
    by_image = {image.tobytes(): label for image, label in zip(bunch.images.astype("uint8"), bunch.target, strict=True)}
    for image, label in zip(test.numpy(), labels.tolist(), strict=True):
        assert by_image[image.tobytes()] == label


def test_digits_are_split_once_and_for_all_by_class() -> None:
    task, again = digits(Path(), 0.0), digits(Path(), 0.0)
    assert (len(task.train), len(task.test), task.val) == (1437, 360, None)
    (train_images, train), (test_images, test) = whole(task.train), whole(task.test)
    assert torch.equal(test_images, whole(again.test)[0])
    share = test.bincount() / (test.bincount() + train.bincount())
    assert (share - 360 / 1797).abs().max() < 0.006, "to within one image per class"
    assert test[:10].tolist() == [2, 4, 6, 7, 8, 0, 2, 5, 0, 5]
    images = task.normalise(train_images).double()
    assert abs(images.mean().item()) < 1e-6 and abs(images.std().item() - 1) < 1e-4


def test_held_out_images_come_from_the_training_set_by_class() -> None:
    all_of_it, split = digits(Path(), 0.0), digits(Path(), 0.1)
    assert split.val is not None
    assert len(split.train) + len(split.val) == len(all_of_it.train)
    assert torch.equal(whole(split.test)[0], whole(all_of_it.test)[0])
    assert whole(split.val)[1].bincount().min() >= 13


def test_holding_out_a_whole_class_is_refused() -> None:
    for fraction in (0.001, 0.9999):
        with pytest.raises(ConfigError, match=r"val_fraction: holding out .* empties class"):
            digits(Path(), fraction)
