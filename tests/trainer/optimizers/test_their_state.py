"""The state of somebody else's optimizer, out and back."""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from polysweep.trainer.errors import ConfigError
from polysweep.trainer.optimizers.their_state import groups_of, is_plain, memory, plain, recall
from tests.support.theirs import TwoSteps


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((2, 3), 0.5)), nn.Parameter(torch.zeros(3))]


def moved(theirs: Any, own: list[nn.Parameter]) -> Any:
    for n, parameter in enumerate(own):
        parameter.grad = torch.full_like(parameter, 0.1 * (n + 1))
    theirs.step()
    return theirs


def through_a_file(content: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)


def test_two_optimizers_that_share_their_groups_still_do() -> None:
    """Of a class with an optimizer inside: its velocity, which its own state_dict lacks."""
    first = parameters()
    theirs = TwoSteps(first, base_optimizer=torch.optim.SGD, rho=0.1, lr=0.1, momentum=0.9)
    moved(theirs.base_optimizer, first)
    theirs.param_groups[0]["lr"] = 0.05
    second = parameters()
    again = TwoSteps(second, base_optimizer=torch.optim.SGD, rho=0.1, lr=0.1, momentum=0.9)
    recall(again, through_a_file(memory(theirs, first)), second)
    assert again.param_groups is again.base_optimizer.param_groups and again.param_groups[0]["lr"] == 0.05
    for one, other in zip(first, second, strict=True):
        velocity = again.base_optimizer.state[other]["momentum_buffer"]
        assert torch.equal(velocity, theirs.base_optimizer.state[one]["momentum_buffer"])
    assert len(list(groups_of(again))) == 2


def test_what_load_state_dict_would_cast_keeps_its_dtype() -> None:
    own = parameters()
    theirs = torch.optim.SGD(own, lr=0.1)
    theirs.state[own[0]]["precise"] = torch.tensor([1 / 3], dtype=torch.float64)
    theirs.state["counts"] = OrderedDict(n=np.float64(2.5), flags=[True, (None, "x")])
    content = through_a_file(memory(theirs, own))
    theirs.state.clear()
    recall(theirs, content, own)
    assert theirs.state[own[0]]["precise"].dtype == torch.float64
    assert theirs.state["counts"] == {"n": 2.5, "flags": [True, (None, "x")]}


def test_what_a_checkpoint_cannot_hold_is_named() -> None:
    own = parameters()
    theirs = torch.optim.SGD(own, lr=0.1)
    theirs.param_groups[0]["rule"] = print
    with pytest.raises(ConfigError, match=r"its param_groups.rule is a builtin_function_or_method"):
        memory(theirs, own)


def test_parameters_are_no_state() -> None:
    assert not is_plain([nn.Parameter(torch.zeros(1))]) and not is_plain({"a": object()})
    assert is_plain({"a": [1, 2.0, None, "x", torch.zeros(1)]})
    assert type(plain(np.float64(1.0), "x")) is float and plain(True, "x") is True
