"""What a signature says of somebody else's optimizer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from sam_sps import SAM_SPS

from polysweep import wrap
from polysweep.trainer.components.component import REQUIRED
from polysweep.trainer.components.registry import AHEAD
from polysweep.trainer.components.wrapping import Wrapping, wrapping_of
from polysweep.trainer.errors import ConfigError
from tests.support import theirs


def test_fields_are_taken_by_their_names_and_all_else_is_an_option() -> None:
    published = Wrapping(SAM_SPS)
    assert set(published.by_field) == {"rho", "gamma_b", "weight_decay"}
    assert published.component("sam_sps:SAM_SPS", "x").uses == {"rho": 0.1, "gamma_b": 1.0}
    assert published.options().model_dump() == {"lambd": 1.0, "f_star": 0.0}
    assert published.call == "closure"


def test_a_field_can_be_given_to_an_argument_of_another_name() -> None:
    usam = wrap(SAM_SPS, fields={"lower_bound": "f_star"}, lambd=0.0)
    assert usam.by_field["lower_bound"] == "f_star" and not usam.options.model_fields
    assert usam.component("x:y", "x").uses["lower_bound"] == 0.0


def test_the_arguments_of_the_class_inside_are_taken_too() -> None:
    assert theirs.SAM.call == "two steps"
    component = theirs.SAM.component("x:SAM", "x")
    assert component.uses == {"rho": 0.05, "momentum": 0} and component.schedulers == AHEAD
    assert {"adaptive", "nesterov", "dampening"} <= set(component.options.model_fields)
    hidden = wrap(theirs.TwoSteps, fields=("momentum", "gamma_b"), base_optimizer=print)
    assert hidden.component("x:y", "x").uses == {"rho": 0.05, "momentum": 0.0, "gamma_b": REQUIRED}


def test_options_have_the_types_of_their_defaults_and_one_spelling() -> None:
    def make(params: Any, count: int = 3, rate: float = 0.5, flag: bool = False, name: str = "a",
             betas: tuple[float, float] = (0.9, 0.99), maybe: Any = None, bound: float = math.inf,
             hook: Any = print) -> None: ...  # fmt: skip

    options = Wrapping(make).options
    assert list(options.model_fields) == ["count", "rate", "flag", "name", "betas", "maybe"]
    assert options(count=2.0, betas=[0.8, 0.9], maybe="x").model_dump() == {
        "count": 2, "rate": 0.5, "flag": False, "name": "a", "betas": (0.8, 0.9), "maybe": "x",
    }  # fmt: skip
    for wrong in ({"flag": 1}, {"rate": True}, {"count": "many"}, {"betas": 0.9}):
        with pytest.raises(ValueError, match="validation error"):
            options(**wrong)


def test_what_is_called_follows_from_the_step() -> None:
    assert Wrapping(torch.optim.Adam).call == "step"
    assert Wrapping(torch.optim.LBFGS).call == "closure"
    assert Wrapping(theirs.Slowing).call == "loss" and Wrapping(theirs.Slowing).step_needs == ("loss", "closure")
    assert theirs.CLOSURE_SGD.call == "closure"
    with pytest.raises(ConfigError, match="expected one of closure, loss, step, two steps"):
        wrap(torch.optim.SGD, call="twice")  # type: ignore[arg-type]


def test_only_classes_of_torch_and_what_wrap_returned_are_wrapped() -> None:
    assert wrapping_of(theirs.SAM) is theirs.SAM
    assert wrapping_of(torch.optim.SGD) == Wrapping(torch.optim.SGD)
    assert wrapping_of(theirs.Nameless) is None and wrapping_of(torch.optim.SGD([torch.zeros(1)], lr=0.1)) is None


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (theirs.of_a_model, "takes 'model' first"),
        (theirs.TwoSteps, r"needs what no config can hold: polysweep.wrap\(TwoSteps, base_optimizer=...\)"),
        (theirs.Modes, "has train\\(\\) and eval\\(\\)"),
        (theirs.stepless, "has no step"),
    ],
)
def test_a_class_that_cannot_be_used_is_refused(part: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Wrapping(part).component("x:y", "x")
