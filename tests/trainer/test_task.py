"""What a task gives to its stack: rows, precisions, and what an oracle without statistics says."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from polysweep.trainer.config import Precision
from polysweep.trainer.passes import LossAndGrad, Weigh
from polysweep.trainer.task import DTYPES, Buffers, Oracle, Rows


class Sphere(Oracle):
    """f(x) = ||x||^2 / 2, which has no running statistics."""

    def start(self) -> Rows:
        return Rows.without_buffers(torch.tensor([[3.0, 4.0], [0.0, 1.0]], dtype=torch.float64))

    def pass_at(
        self,
        theta: Tensor,
        inputs: Tensor,
        labels: Tensor,  # noqa: ARG002
        weigh: Weigh | None = None,  # noqa: ARG002
    ) -> LossAndGrad:
        return LossAndGrad(theta.square().sum(1) / 2, theta, inputs)


def test_rows_without_buffers_have_empty_ones_of_their_own_width() -> None:
    theta, (floats, counters) = Sphere().start()
    assert (theta.shape, floats.shape, counters.shape) == ((2, 2), (2, 0), (2, 0))
    assert (floats.dtype, counters.dtype) == (torch.float64, torch.int64)


def test_an_oracle_without_statistics_gives_back_those_of_before_the_step() -> None:
    oracle, none = Sphere(), torch.empty(0)
    for value in (1.0, 2.0):
        before = Buffers(torch.full((2, 3), value), torch.zeros(2, 1, dtype=torch.int64))
        oracle.begin(before, torch.tensor(0))
        assert oracle.pass_at(oracle.start().theta, none, none).loss.tolist() == [12.5, 0.5]
        assert oracle.statistics() is before


def test_every_precision_of_a_config_has_its_dtype_and_only_float64_has_64_bits() -> None:
    assert DTYPES.keys() == set(get_args(Precision))
    assert {name for name, dtype in DTYPES.items() if dtype != torch.float32} == {"float64"}
    assert DTYPES["float64"] == torch.float64
