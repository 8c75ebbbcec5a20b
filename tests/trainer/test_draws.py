"""Random numbers by row: their probability, and what they depend on."""

from __future__ import annotations

import pytest
import torch

from polysweep.trainer.draws import bernoulli, step_keys, threshold


def test_the_limits_of_a_threshold() -> None:
    """With probability 1 nothing is below the lowest int64; 2^63 is out of reach of a probability below 1."""
    assert threshold(0.0) == -(2**63) and threshold(0.5) == 0
    assert threshold(1 - 2**-53) < 2**63


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_a_row_is_true_with_its_probability(p: float) -> None:
    """Within five standard deviations."""
    keys = step_keys(torch.arange(2), torch.tensor(3))
    drawn = bernoulli(keys, torch.tensor([threshold(1 - p), threshold(0.0)]), 10**5)
    assert abs(drawn[0].double().mean() - p) <= 5 * (p * (1 - p) / 10**5) ** 0.5
    assert drawn[1].all()


def test_a_row_draws_the_same_whatever_its_neighbours_and_other_numbers_in_another_step() -> None:
    limits = torch.tensor([threshold(0.5)] * 3)
    seeds = torch.tensor([5, 6, 7])
    three = bernoulli(step_keys(seeds, torch.tensor(1)), limits, 1000)
    alone = bernoulli(step_keys(seeds[1:2], torch.tensor(1)), limits[:1], 1000)
    later = bernoulli(step_keys(seeds, torch.tensor(2)), limits, 1000)
    assert torch.equal(three[1:2], alone)
    assert abs((three == later).double().mean() - 0.5) < 0.05
