"""Adam and AdamW, alone and under USAM and SAM, and decoupled weight decay: against torch.optim, and row by row."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.train import train
from tests.support.project import TINY
from tests.support.stacks import load, mini_batches, plain_module, stack_of

BASE = {**TINY, "batch_size": 64, "epochs": 20, "scheduler": "constant", "lr": 0.01, "precision": "float64"}
DESCENT: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
}  # fmt: skip
FAMILIES: dict[str, list[dict[str, Any]]] = {
    "adam": [
        {"optimizer": "adam", "weight_decay": 0.1},
        {"optimizer": "adamw", "weight_decay": 0.1, "seed": 1, "optimizer_options": {"beta1": 0.5, "eps": 1e-3}},
        {"optimizer": "adamw", "seed": 2, "scheduler": "cosine"},
        {"optimizer": "adam", "seed": 3, "optimizer_options": {"beta2": 0.9}},
    ],
    "sam-adam": [
        {"optimizer": "sam", "base": "adam", "weight_decay": 0.1, "rho": 0.05},
        {"optimizer": "usam", "base": "adamw", "weight_decay": 0.1, "rho": 0.2, "rho_schedule": "inverse", "seed": 1},
        {"optimizer": "sam", "base": "adamw", "rho": 0.1, "seed": 2, "scheduler": "cosine"},
        {"optimizer": "usam", "base": "adam", "rho": 0.0, "seed": 3, "optimizer_options": {"beta2": 0.9}},
    ],
    "sam": [
        {"optimizer": "sam", "weight_decay": 0.1, "rho": 0.05},
        {"optimizer": "usam", "base": "sgdw", "weight_decay": 0.1, "momentum": 0.9, "rho": 0.2, "seed": 1},
        {"optimizer": "sam", "base": "sgdw", "momentum": 0.5, "rho": 0.2, "seed": 2, "scheduler": "polyak", "lr": None},
        {"optimizer": "usam", "weight_decay": 0.1, "momentum": 0.9, "rho": 0.1, "seed": 3},
    ],
    "sgd": [
        {"optimizer": "sgd", "weight_decay": 0.1},
        {"optimizer": "sgdw", "weight_decay": 0.1, "momentum": 0.9, "seed": 1},
        {"optimizer": "sgd", "weight_decay": 0.1, "momentum": 0.9, "seed": 2},
    ],
}


def row(**changes: Any) -> TrialConfig:
    values = {**BASE, **changes}
    if values["optimizer"] in ("sgd", "sgdw", "adam", "adamw"):
        values["rho"] = None
    return TrialConfig.parse(values)


def rows(family: str, **changes: Any) -> list[TrialConfig]:
    return [row(**{**one, **changes}) for one in FAMILIES[family]]


def their_step(
    module: nn.Module, theirs: torch.optim.Optimizer, config: TrialConfig, images: Tensor, labels: Tensor
) -> None:
    """A step of torch.optim with the gradient at x + s."""
    parameters = list(module.parameters())
    x = [parameter.detach().clone() for parameter in parameters]
    if config.rho:
        grads = torch.autograd.grad(F.cross_entropy(module(images), labels), parameters)
        length = nn.utils.parameters_to_vector(grads).norm() if config.optimizer == "sam" else 1.0
        with torch.no_grad():
            for parameter, grad in zip(parameters, grads, strict=True):
                parameter.add_(grad, alpha=float(config.rho / length))
    theirs.zero_grad()
    F.cross_entropy(module(images), labels).backward()
    with torch.no_grad():
        for parameter, value in zip(parameters, x, strict=True):
            parameter.copy_(value)
    theirs.step()


METHODS = [("sgd", "sgd"), ("adam", "adam"), ("adamw", "adamw"), *itertools.product(["usam", "sam"], DESCENT)]
SHORT = [("adam", "adam"), ("adamw", "adamw"), ("sam", "adamw")]


@pytest.mark.parametrize(
    ("optimizer", "base"), [pytest.param(*one, marks=[] if one in SHORT else pytest.mark.long) for one in METHODS]
)
def test_200_steps_agree_with_torch_optim(optimizer: str, base: str) -> None:
    """Beside a row with other options; of softmax regression, so that rounding does not grow."""
    decay = 0.1 if base == "adamw" else 5e-4
    extra: dict[str, Any] = {"momentum": 0.9} if base == "sgd" else {"optimizer_options": {"beta1": 0.8, "beta2": 0.99}}
    if optimizer in ("usam", "sam"):
        extra |= {"base": base, "rho": 0.05}
    model = {"model_options": {"layers": 0}}
    one = row(optimizer=optimizer, weight_decay=decay, **model, **extra)
    stack = stack_of(one, row(**{**extra, **model, "optimizer": optimizer, "seed": 1, "optimizer_options": {}}))
    module = plain_module(stack)
    load(module, stack)
    options = {"momentum": 0.9} if base == "sgd" else {"betas": (0.8, 0.99)}
    theirs = DESCENT[base](module.parameters(), lr=0.01, weight_decay=decay, **options)
    for _, step, images, labels in mini_batches(stack, epochs=9):
        their_step(module, theirs, one, images[0], labels[0])
        stack.step(images, labels, step)
        difference = (stack.theta[0] - nn.utils.parameters_to_vector(module.parameters())).abs().max()
        assert difference < 1e-12, f"step {step}"
    assert step >= 200


def test_float32_agrees_with_torch_optim_to_its_rounding() -> None:
    stack = stack_of(row(optimizer="adam", precision="float32", model_options={"layers": 0}))
    module = plain_module(stack)
    load(module, stack)
    theirs = torch.optim.Adam(module.parameters(), lr=0.01)
    for _, step, images, labels in mini_batches(stack, epochs=1):
        their_step(module, theirs, stack.configs[0], images[0], labels[0])
        stack.step(images, labels, step)
    assert (stack.theta[0] - nn.utils.parameters_to_vector(module.parameters())).abs().max() < 1e-5


def trained(configs: list[TrialConfig], steps: int = 8) -> Stack:
    stack = stack_of(*configs)
    for _, step, images, labels in itertools.islice(mini_batches(stack), steps):
        stack.step(images, labels, step)
    return stack


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=pytest.mark.long)])
def test_a_row_does_not_depend_on_its_neighbours_or_their_order(family: str, precision: str) -> None:
    configs = rows(family, precision=precision)
    assert len({config.signature for config in configs}) == 1
    together, reordered = trained(configs), trained(configs[::-1])
    assert torch.equal(together.theta, reordered.theta.flip(0))
    for name, tensor in together.state.items():
        assert torch.equal(tensor, reordered.state[name].flip(0)), name
    for index, config in enumerate(configs):
        assert torch.equal(together.theta[index], trained([config] * len(configs)).theta[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stack_agrees_with_stacks_of_one(family: str) -> None:
    configs = rows(family)
    together = trained(configs)
    for index, config in enumerate(configs):
        assert (together.theta[index] - trained([config]).theta[0]).abs().max() < 1e-10


@pytest.mark.parametrize("family", FAMILIES)
def test_divergence_in_one_row_leaves_the_others_untouched(family: str) -> None:
    clean, hit = (stack_of(*rows(family)) for _ in range(2))
    for _, step, images, labels in itertools.islice(mini_batches(clean), 8):
        clean.step(images, labels, step)
        poisoned = images.clone()
        poisoned[1] = torch.nan if step == 3 else poisoned[1]
        before = {name: tensor.clone() for name, tensor in hit.state.items()}
        hit.step(poisoned, labels, step)
        if step == 3:
            assert all(torch.equal(hit.state[name][1], tensor[1]) for name, tensor in before.items())
    others = [n for n in range(clean.width) if n != 1]
    assert hit.active.tolist() == [n != 1 for n in range(clean.width)]
    assert torch.equal(clean.theta[others], hit.theta[others])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_resumed_training_is_bitwise_the_uninterrupted_one(family: str) -> None:
    """Each row from its own checkpoint, in another order."""
    configs = rows(family, epochs=3, precision="float32")
    whole = list(train(configs))
    checkpoints = [report.checkpoint() for report in whole[0]]
    resumed = list(train(configs[::-1], checkpoints=checkpoints[::-1]))
    for index, report in enumerate(whole[-1]):
        ours, again = report.checkpoint(), resumed[-1][len(configs) - 1 - index].checkpoint()
        assert ours["row"].keys() == again["row"].keys()
        assert all(torch.equal(tensor, again["row"][name]) for name, tensor in ours["row"].items())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("width", [1, 2])
def test_a_step_never_asks_the_device_for_a_value(family: str, width: int) -> None:
    configs = rows(family, model="resnet8")[:width]
    stack = Stack(configs, load_task(configs[0]), "meta")
    EpochRunner(stack).rehearse(64)
    assert stack.theta.is_meta


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_zero_gradient_moves_nothing_but_decay(optimizer: str) -> None:
    """The first step without a gradient is 0 / (0 + eps): neither NaN nor infinite."""
    stack = stack_of(row(optimizer=optimizer, weight_decay=0.1 if optimizer == "adamw" else 0.0))
    zero = torch.zeros_like(stack.theta)
    v, state = stack._optimizer.base_step(zero, stack.optimizer_state)
    assert torch.equal(v, zero) and all(tensor.isfinite().all() for tensor in state.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "sam", "base": "lion"}, "base: unknown base 'lion'; expected one of adam, adamw, sgd, sgdw"),
        ({"optimizer": "sgd", "base": "adam"}, "base: optimizer 'sgd' does not use it (used by optimizer: usam, sam)"),
        ({"optimizer": "adam", "base": "adam"}, "base: optimizer 'adam' does not use it"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum: optimizer 'adam' does not use it"),
        ({"optimizer": "sam", "base": "adam", "momentum": 0.9}, "momentum: optimizer 'sam' with base 'adam' does not"),
        ({"optimizer": "sam", "base": "sgdw"}, "momentum: missing; optimizer 'sam' with base 'sgdw' needs it"),
        ({"optimizer": "sgdw", "momentum": 0}, "momentum: 0: decoupled weight decay is then the coupled one of 'sgd'"),
        ({"optimizer": "sam", "optimizer_options": {"beta1": 0.5}}, "its options: none; of base adam, adamw: beta1"),
        ({"optimizer": "adam", "optimizer_options": {"beta1": 1}}, "beta1: Input should be less than 1"),
        ({"optimizer": "adam", "optimizer_options": {"eps": 0}}, "eps: Input should be greater than 0"),
        (
            {"optimizer": "usam", "base": "adamw", "scheduler": "polyak", "lr": None},
            "'polyak' is not for optimizer 'usam' with base 'adamw': its step size is derived for a step along",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_base_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        row(**{"rho": 0.1, **changes})
    assert message in str(caught.value)


def test_the_default_base_is_neutral() -> None:
    assert row(optimizer="sam", base="sgd").trial_id == row(optimizer="sam").trial_id
    assert row(optimizer="sam", base="adam").trial_id != row(optimizer="sam", base="adamw").trial_id
