"""SPS_+, DecSPS and NGN: exact answers; `test_family` has their twins."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.polyak import polyak
from polysweep.trainer.schedulers.scheduler import Gamma, StepContext, StepSizes
from tests.support.family_runs import SCHEDULERS, SOFTMAX

NAMES = ("sps-plus", "decsps", "ngn")


def of(name: str, **fields: Any) -> StepSizes:
    """The step sizes of one row in float64."""
    values = {**SCHEDULERS[name][0], **fields, "optimizer": "sgd", "scheduler": name}
    return StepSizes([TrialConfig.parse({**SOFTMAX, **values})], torch.device("cpu"), torch.float64)


def seen(loss: float, grad: list[float], perturbation: list[float] | None = None, t: int = 0) -> StepContext:
    """What a scheduler reads of one row."""
    g, s = (torch.tensor([v], dtype=torch.float64) for v in (grad, perturbation or [0.0] * len(grad)))
    return StepContext(LossAndGrad(torch.tensor([loss], dtype=torch.float64), g, g), s, torch.tensor(t), g)


def first(rule: StepSizes, context: StepContext) -> Gamma:
    """The step size of a step with the state of before step 0."""
    return rule.gamma(context, rule.init())[0]


def test_sps_plus_solves_the_absolute_value_in_one_step() -> None:
    """f(x) = |x| at x = 300: gamma = 300, far above any cap."""
    assert first(of("sps-plus"), seen(300.0, [1.0])).value.tolist() == [300.0]


def test_sps_plus_is_the_stochastic_polyak_scheduler_without_a_cap() -> None:
    generator = torch.Generator().manual_seed(0)
    rule = of("sps-plus", lower_bound=0.1)
    for _ in range(50):
        loss, *rest = torch.randn(7, generator=generator, dtype=torch.float64).tolist()
        context = seen(loss, rest[:3], rest[3:])
        inf, bound = (torch.tensor([v], dtype=torch.float64) for v in (math.inf, 0.1))
        expected = polyak(context.loss, bound, context.grad, context.perturbation, inf)
        assert all(map(torch.equal, first(rule, context), expected))


def test_a_perturbed_point_counts_as_in_the_paper() -> None:
    """f(e) = 2, l = 1, grad = (2, 0), e - x = (0.25, 7): E = 2 - 1 - 0.5 and ||grad||^2 = 4."""
    context = seen(2.0, [2.0, 0.0], [0.25, 7.0])
    assert first(of("sps-plus", lower_bound=1.0), context).value.tolist() == [0.125]
    assert first(of("decsps", lower_bound=1.0), context).value.tolist() == [0.125]
    assert first(of("ngn", lower_bound=1.0, lr=0.5), context).value.tolist() == [0.5 / 3]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loss", [0.0, -1.0])
@pytest.mark.parametrize("grad", [0.0, 1e-30, 1.0])
def test_a_numerator_that_is_not_positive_is_a_step_of_zero_and_never_nan(name: str, loss: float, grad: float) -> None:
    gamma = first(of(name), seen(loss, [grad]))
    assert gamma.value.tolist() == [0.0] and gamma.zeroed.all() and not gamma.capped.any()


def test_at_a_zero_gradient_a_step_size_is_finite() -> None:
    """0 without a cap, else the cap, or what it is for a small gradient."""
    assert first(of("sps-plus"), seen(1.0, [0.0])).value.tolist() == [0.0]
    assert first(of("decsps", gamma_b=0.7), seen(1.0, [0.0])).value.tolist() == [0.7]
    assert first(of("ngn", lr=0.7), seen(1.0, [0.0])).value.tolist() == [0.7]


def decsps(losses: list[float], **fields: Any) -> list[float]:
    """The step sizes for these losses with a gradient of 1."""
    rule = of("decsps", **fields)
    state, values = rule.init(), []
    for t, loss in enumerate(losses):
        gamma, state = rule.gamma(seen(loss, [1.0], t=t), state)
        values.append(gamma.value.item())
    return values


def test_decsps_never_grows_and_falls_as_one_over_the_root() -> None:
    losses = torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64).add(0.01).tolist()
    values = decsps(losses, gamma_b=0.5, scheduler_options={"c0": 2.0})
    reach = [2 * math.sqrt(t + 1) * value for t, value in enumerate(values)]
    assert all(a >= b for a, b in pairwise(values))
    assert all(a * (1 + 1e-15) >= b for a, b in pairwise(reach)), "c_t gamma_t, to its rounding"
    assert reach[0] == min(2 * 0.5, losses[0]) and reach[-1] == pytest.approx(min(losses), rel=1e-15)


def test_decsps_is_at_its_cap_as_long_as_no_loss_has_been_below_it() -> None:
    rule = of("decsps", gamma_b=0.5)
    state, capped = rule.init(), []
    for t, loss in enumerate([4.0, 0.5, 0.4, 4.0]):
        gamma, state = rule.gamma(seen(loss, [1.0], t=t), state)
        capped.append(gamma.capped.item())
    assert capped == [True, True, False, False]


def test_decsps_goes_on_after_a_step_of_zero() -> None:
    assert decsps([4.0, -1.0, 4.0], gamma_b=0.5) == [0.5, 0.0, 0.5 / math.sqrt(3)]


def test_ngn_is_between_a_constant_step_size_and_twice_polyaks() -> None:
    """sigma as sigma goes to 0, 2 (f - l) / ||g||^2 = 1.5 as it grows; a harmonic mean of both between."""
    context = seen(3.0, [2.0])
    assert first(of("ngn", lr=1e-12), context).value.item() == pytest.approx(1e-12, rel=1e-11)
    assert first(of("ngn", lr=1e12), context).value.item() == pytest.approx(1.5, rel=1e-11)
    assert first(of("ngn", lr=1.5), context).value.tolist() == [0.75]


@pytest.mark.parametrize("optimizer", ["adam", "adasam"])
@pytest.mark.parametrize("name", [*NAMES, "momo"])
def test_a_step_that_is_not_along_the_gradient_is_refused(name: str, optimizer: str) -> None:
    fields = {"scheduler": name, "rho": 0.1, **SCHEDULERS[name][0]} if optimizer == "adasam" else {"scheduler": name}
    with pytest.raises(ConfigError, match=f"scheduler: '{name}' is not for optimizer '{optimizer}': its step size is"):
        TrialConfig.parse({**SOFTMAX, "optimizer": optimizer, **fields})


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("sps-plus", {"gamma_b": 1.0}, "gamma_b: "),
        ("ngn", {"lr": None}, "lr: missing; scheduler 'ngn' needs it"),
        ("decsps", {"scheduler_options": {"c0": 0}}, "scheduler_options.c0: Input should be greater than 0"),
        ("decsps", {"lr": 0.1}, "lr: "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(name, **fields)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_row_without_a_cap_that_overflows_has_diverged() -> None:
    """Near a gradient of 0 SPS_+ is as large as it gets, and infinite beyond what the precision holds."""
    gamma = first(of("sps-plus"), seen(1.0, [1e-160]))
    assert gamma.value.isinf().all() and not gamma.value.isnan().any()
