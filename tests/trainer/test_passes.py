"""What a pass gives: norms of its gradient, and values that are computed where they are asked for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from polysweep.trainer.passes import LazyPass, LossAndGrad


def test_norms_are_those_of_each_row() -> None:
    loss, grad = torch.tensor([2.0, float("nan")]), torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    one = LossAndGrad(loss, grad, torch.zeros(2, 1, 10))
    assert (one.square.tolist(), one.norm.tolist()) == ([25.0, 0.0], [5.0, 0.0])
    assert one.gap is None and one.loss is loss
    assert [values.isfinite().tolist() for values in one.finite_if_sound] == [[True, False], [True, True]]


@pytest.mark.parametrize(("star", "loss", "gap"), [(2.0, 2.5, 0.5), (0.0, 0.5, 0.5), (None, 0.5, None)])
def test_a_lazy_pass_computes_its_value_once_and_only_if_it_is_asked_for(
    star: float | None, loss: float, gap: float | None
) -> None:
    calls = []

    def value() -> Tensor:
        calls.append(1)
        return torch.tensor([0.5])

    one = LazyPass(value, torch.tensor([[3.0, 4.0]]), star)
    assert one.norm.tolist() == [5.0] and one.finite_if_sound == () and not calls
    assert one.loss.tolist() == [loss]
    assert (None if one.gap is None else one.gap.tolist()) == (None if gap is None else [gap])
    assert one.loss.tolist() == [loss] and calls == [1]
