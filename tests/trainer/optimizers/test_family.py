"""The SAM family: each rule against its NumPy twin, where it is SAM, and what its rows share with no neighbour."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.optimizers.family import along, orthogonal
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.train import train
from tests.support.family_runs import COMBINATIONS, OPTIMIZERS, SCHEDULERS, SOFTMAX, differences, one, ran, rows
from tests.support.recorder import Recorder
from tests.support.stacks import mini_batches, stack_of
from tests.support.training import by_row

FAMILY = ("asam", "gsam", "f-sam", "looksam", "esam")
SMALL = {"task": "digits", "model": "mlp", "batch_size": 256, "epochs": 3}


@pytest.mark.parametrize(("optimizer", "scheduler"), COMBINATIONS)
def test_every_step_of_a_combination_agrees_with_its_numpy_twin(optimizer: str, scheduler: str) -> None:
    """60 steps of two rows with different options. Observed: at most 3e-13 of the largest entry, mostly 1e-15."""
    pair = rows(optimizer, scheduler)
    assert pair[0].signature == pair[1].signature
    assert max(differences(pair, 60)) < 1e-11


@pytest.mark.parametrize("optimizer", FAMILY)
def test_a_row_alone_agrees_with_its_numpy_twin(optimizer: str) -> None:
    assert max(differences(rows(optimizer, "constant")[:1], 60)) < 1e-11


# Where they are SAM.


def test_asam_with_a_large_eta_is_sam_with_eta_times_the_radius() -> None:
    """T = |x| + eta is eta to |x| / eta = 1e-8, and s and with it the step are off by as much."""
    asam = ran(one("asam", rho=0.2e-8, optimizer_options={"eta": 1e8}))
    torch.testing.assert_close(asam.theta, ran(one("sam", rho=0.2)).theta, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [("gsam", {"alpha": 0.0}), ("f-sam", {"sigma": 0.0}), ("looksam", {"every": 1})],
)
def test_a_relative_without_its_own_part_is_bitwise_sam(optimizer: str, options: dict[str, Any]) -> None:
    shared = {"rho": 0.2, "rho_schedule": "inverse_sqrt", "momentum": 0.5, "model": "resnet8", "model_options": {}}
    shared |= {"batchnorm_statistics": "first", "precision": "float32"}
    relative = ran(one(optimizer, optimizer_options=options, **shared), steps=5)
    sam = ran(one("sam", **shared), steps=5)
    assert torch.equal(relative.theta, sam.theta)
    assert torch.equal(relative.buffers.floats, sam.buffers.floats)


# Single steps.


def tensors(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64)


def test_along_has_the_length_that_is_asked_for_and_is_zero_without_a_direction() -> None:
    assert along(tensors(3, 4), tensors(10)).tolist() == [[6, 8]]
    assert along(tensors(0, 0), tensors(10)).tolist() == [[0, 0]]


def test_the_orthogonal_part_is_what_is_left() -> None:
    loss = tensors(1)[0]
    assert orthogonal(tensors(3, 4), LossAndGrad(loss, tensors(2, 0), loss)).tolist() == [[0, 4]]
    assert orthogonal(tensors(3, 4), LossAndGrad(loss, tensors(0, 0), loss)).tolist() == [[3, 4]]


@pytest.mark.parametrize("optimizer", FAMILY)
def test_a_zero_gradient_leaves_the_row_unchanged(optimizer: str) -> None:
    stack = stack_of(one(optimizer, rho=0.1, weight_decay=0.0))

    def flat(theta: Tensor, weigh: Any = None) -> LossAndGrad:
        losses = torch.ones(1, 4, dtype=theta.dtype)
        if weigh:
            assert weigh(losses).sum() == 1
        return LossAndGrad(losses.mean(1), torch.zeros_like(theta), torch.zeros(1, 4, 10), lambda: losses)

    gamma = stack.step_sizes._rules["constant"]._gamma  # type: ignore[attr-defined]
    state = stack._optimizer.init(stack.theta)
    result = stack._optimizer.update(flat, lambda *_: gamma, stack.theta, state, torch.tensor(0))
    assert torch.equal(result.theta, stack.theta)


# LookSAM's second pass.


def passes(stack: Stack, steps: int) -> list[int]:
    """How many passes each step makes."""
    counts = []
    evaluate = stack._oracle.pass_at
    stack._oracle.pass_at = lambda *arguments: (counts.append(0), evaluate(*arguments))[1]  # type: ignore
    made = []
    for _, step, images, labels in itertools.islice(mini_batches(stack), steps):
        counts.clear()
        stack.step(images, labels, step)
        made.append(len(counts))
    return made


def test_looksam_passes_once_where_no_row_looks() -> None:
    every_3 = one("looksam", rho=0.1, optimizer_options={"every": 3})
    every_2 = one("looksam", rho=0.1, optimizer_options={"every": 2})
    assert passes(stack_of(every_3), 7) == [2, 1, 1, 2, 1, 1, 2]
    assert passes(stack_of(every_3, every_2), 7) == [2, 1, 2, 2, 2, 1, 2]


@pytest.mark.parametrize("width", [1, 2])
def test_looksam_that_drops_the_pass_has_the_bits_of_one_that_makes_none(width: int) -> None:
    """With batch norm, whose statistics a dropped pass must not update, and a value of all that is reported."""
    small = {"model": "resnet8", "model_options": {}, "precision": "float32", "batch_size": 256, "epochs": 1}
    configs = [
        one("looksam", rho=0.1, seed=seed, optimizer_options={"every": 2 + seed}, **small) for seed in range(width)
    ]
    eager, captured = list(train(configs)), list(train(configs, capture=Recorder()))
    for row in range(width):
        assert by_row(captured, row) == by_row(eager, row)
        a, b = eager[-1][row].checkpoint()["row"], captured[-1][row].checkpoint()["row"]
        assert all(torch.equal(a[name], b[name]) for name in a)


# Rows.


@pytest.mark.parametrize("optimizer", FAMILY)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_row_does_not_depend_on_its_neighbours_or_their_order(optimizer: str, precision: str) -> None:
    a, b = rows(optimizer, "constant", precision=precision, model="mlp", model_options={})
    c = a.model_copy(update={"seed": 7, "rho": 0.3})
    together, reordered = ran(a, b, c, steps=8), ran(c, b, a, steps=8)
    other = ran(a, c, c, steps=8)
    assert torch.equal(together.theta, reordered.theta[[2, 1, 0]])
    assert torch.equal(together.theta[0], other.theta[0])


@pytest.mark.parametrize("optimizer", FAMILY)
def test_divergence_in_one_row_leaves_the_others_untouched(optimizer: str) -> None:
    base = {**SMALL, "optimizer": optimizer, "scheduler": "constant", "rho": 0.1}
    sound = TrialConfig.parse({**base, "lr": 0.05})
    lost = TrialConfig.parse({**base, "lr": 1e30, "seed": 1})
    beside, alone = list(train([sound, lost])), list(train([sound], width=2))
    assert by_row(beside, 0) == by_row(alone, 0)
    assert beside[0][1].outcome == "diverged" and beside[-1][0].outcome == "finished"


STATEFUL = [*((name, "constant") for name in FAMILY), *(("asam", name) for name in ("decsps", "momo"))]


@pytest.mark.parametrize(("optimizer", "scheduler"), STATEFUL)
def test_continuing_from_a_checkpoint_is_bitwise_the_uninterrupted_run(optimizer: str, scheduler: str) -> None:
    pair = rows(optimizer, scheduler, precision="float32", model="mlp", model_options={})
    whole = list(train(pair))
    first = list(itertools.islice(train(pair), 2))
    saved = []
    for report in first[-1]:
        buffer = io.BytesIO()
        torch.save(report.checkpoint(), buffer)
        saved.append(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    rest = list(train(pair, checkpoints=saved))
    for row in range(2):
        assert by_row(first + rest, row) == by_row(whole, row)
        a, b = whole[-1][row].checkpoint()["row"], rest[-1][row].checkpoint()["row"]
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize(("optimizer", "scheduler"), [*STATEFUL, ("sgd", "sps-plus"), ("sam", "ngn")])
def test_a_step_never_asks_the_device_for_a_value(optimizer: str, scheduler: str, width: int) -> None:
    """On the meta device there are no values: whatever would wait for one raises."""
    pair = rows(optimizer, scheduler, precision="float32", model="resnet8", model_options={})[:width]
    stack = Stack(pair, load_task(pair[0]), "meta")
    before = stack.theta
    EpochRunner(stack).rehearse(64)
    assert stack.theta.is_meta and stack.theta is not before


@pytest.mark.parametrize("optimizer", FAMILY)
def test_a_captured_training_is_bitwise_the_eager_one(optimizer: str) -> None:
    pair = rows(optimizer, "constant", precision="float32", model="mlp", model_options={}, epochs=2)
    eager, captured = list(train(pair)), list(train(pair, capture=Recorder()))
    for row in range(2):
        assert by_row(captured, row) == by_row(eager, row)


# Refusals.


@pytest.mark.parametrize("scheduler", ["polyak", "sps-plus", "decsps", "momo", "ngn"])
@pytest.mark.parametrize("optimizer", ["gsam", "looksam"])
def test_a_direction_that_is_not_the_gradient_at_e_takes_no_step_size_of_it(optimizer: str, scheduler: str) -> None:
    fields = {**OPTIMIZERS[optimizer][0], **SCHEDULERS[scheduler][0]}
    with pytest.raises(ConfigError) as caught:
        TrialConfig.parse({**SOFTMAX, "optimizer": optimizer, "scheduler": scheduler, **fields})
    assert str(caught.value) == (
        f"scheduler: {scheduler!r} is not for optimizer {optimizer!r}: its step size is derived for a step along the "
        "gradient; expected one of constant, cosine, multistep, one-cycle, step, warmup-cosine"
    )
