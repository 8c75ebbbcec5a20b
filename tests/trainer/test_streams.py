"""Named random streams, and the order of an epoch."""

from __future__ import annotations

import torch

from polysweep.trainer.streams import epoch_order
from tests.support.stacks import config, stack_of


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
