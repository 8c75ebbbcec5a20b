"""MoMo: exact answers, and the direction that it gives a step; `test_family` has its twin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.optimizers.optimizer import State
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.scheduler import Gamma, StepContext, StepSizes
from tests.support.family_runs import SOFTMAX, one, ran
from tests.support.stacks import mini_batches, stack_of


def momo(**fields: Any) -> TrialConfig:
    return TrialConfig.parse({**SOFTMAX, "optimizer": "sgd", "scheduler": "momo", **fields})


@pytest.mark.parametrize("optimizer", ["sgd", "usam", "sam"])
def test_beta_zero_is_the_stochastic_polyak_scheduler_with_cap_lr(optimizer: str) -> None:
    """<h, x> - <h, e> is rounded otherwise than <h, e - x>."""
    fields = {"optimizer": optimizer, "lower_bound": 0.05, **({} if optimizer == "sgd" else {"rho": 0.1})}
    ours = ran(momo(lr=0.4, scheduler_options={"beta": 0.0}, **fields))
    polyak = TrialConfig.parse({**SOFTMAX, "scheduler": "polyak", "gamma_b": 0.4, **fields})
    torch.testing.assert_close(ours.theta, ran(polyak).theta, rtol=0, atol=1e-11)


def steps(rule: StepSizes, losses: list[float], grads: list[float], xs: list[float]) -> list[tuple[Gamma, Tensor]]:
    """By step gamma and direction of one row with one parameter, at e = x."""
    state, results = rule.init(), []
    for t, values in enumerate(zip(losses, grads, xs, strict=True)):
        f, g, x = (torch.tensor([[value]], dtype=torch.float64) for value in values)
        context = StepContext(LossAndGrad(f[0], g, g), torch.zeros_like(g), torch.tensor(t), x)
        gamma, state = rule.gamma(context, state)
        results.append((gamma, rule.direction(g, state)))
    return results


def rule_of(*configs: TrialConfig) -> StepSizes:
    return StepSizes(configs, torch.device("cpu"), torch.float64, parameters=1)


def test_the_averages_begin_with_the_first_values() -> None:
    """Step 0 is that of Polyak: f = 3, g = 2, gamma = 3 / 4. Then f = (3 + 1) / 2, d = (2 + 6) / 2 = 4, <d, x> = 4,
    p = (2 x 5 + 6 x 1) / 2 = 8: the model at x = 1 is 2 + 4 - 8 < 0. Then x = 3: it is 1.5 + 9 - 7 = 3.5, over d^2 = 9.
    """
    first, second, third = steps(
        rule_of(momo(lr=9.0, scheduler_options={"beta": 0.5})), [3.0, 1.0, 1.0], [2.0, 6.0, 2.0], [5.0, 1.0, 3.0]
    )
    assert first[0].value.tolist() == [0.75] and first[1].tolist() == [[2.0]]
    assert second[0].value.tolist() == [0.0] and second[0].zeroed.all() and second[1].tolist() == [[4.0]]
    assert third[0].value.tolist() == [3.5 / 9] and third[1].tolist() == [[3.0]]


def test_the_cap_holds_at_a_zero_gradient_and_nothing_is_nan() -> None:
    (up, _), (down, _) = (steps(rule_of(momo(lr=0.7)), [f], [0.0], [1.0])[0] for f in (1.0, -1.0))
    assert up.value.tolist() == [0.7] and up.capped.all()
    assert down.value.tolist() == [0.0] and down.zeroed.all()


def test_a_row_beside_momo_follows_its_own_direction() -> None:
    constant = one("sgd")
    beside = ran(constant, momo(), steps=10)
    assert torch.equal(beside.theta[0], ran(constant, constant, steps=10).theta[0])
    averaging = one("sgd", scheduler="momo", lr=0.1, seed=1)
    assert torch.equal(ran(constant, averaging, steps=10).theta[1], ran(averaging, constant, steps=10).theta[0])


def test_the_step_is_along_the_average_and_weight_decay_is_added_to_it() -> None:
    stack = stack_of(momo(lr=0.2, weight_decay=0.01))
    average: Any = None
    for (_, step, images, labels), _ in zip(mini_batches(stack), range(5), strict=False):
        x = stack.theta.clone()
        result = stack.step(images, labels, step).result
        average = result.x.grad if average is None else 0.9 * average + 0.1 * result.x.grad
        expected = x - result.gamma.value.unsqueeze(1) * (average + 0.01 * x)
        torch.testing.assert_close(stack.theta, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("optimizer", ["sgd", "sam", "asam", "f-sam", "esam"])
def test_momentum_beside_it_is_refused(optimizer: str) -> None:
    radius = {} if optimizer == "sgd" else {"rho": 0.1}
    with pytest.raises(ConfigError, match=r"^momentum: scheduler 'momo' fixes it itself; leave it out$"):
        momo(optimizer=optimizer, momentum=0.9, **radius)
    with pytest.raises(ConfigError, match="take that instead"):
        momo(optimizer="sgdw")


def test_an_optimizer_that_steps_by_itself_is_refused() -> None:
    """It would leave the average out without a word."""
    stack = stack_of(momo())

    def descend(x: Tensor, d: Tensor, gamma: Gamma, state: State) -> tuple[Tensor, State]:
        return x - gamma.value.unsqueeze(1) * d, state

    stack._optimizer.descend = descend  # type: ignore[method-assign]
    _, step, images, labels = next(iter(mini_batches(stack)))
    with pytest.raises(ConfigError, match=r"scheduler: 'momo' chooses the direction, but upd"):
        stack.step(images, labels, step)
