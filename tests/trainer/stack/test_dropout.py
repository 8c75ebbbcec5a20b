"""Dropout by row: what is kept, how often, and that a row's masks are its own at every K."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.draws import mixed, step_keys
from polysweep.trainer.rehearsal import refusal
from polysweep.trainer.stack.dropout import draw_by_row, set_keys
from polysweep.trainer.train import train
from tests.support.lab import lab as lab
from tests.support.project import TINY
from tests.support.training import by_row

KINDS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
KEY = torch.tensor(3)


def by_rows_own(layer: nn.Module, key: Tensor = KEY) -> nn.Module:
    set_keys(draw_by_row(layer), key)
    return layer


def test_the_hash_is_splitmix() -> None:
    # The first three numbers of the published generator for seed 1234567.
    increments = [(1234567 + n * 0x9E3779B97F4A7C15 + 2**63) % 2**64 - 2**63 for n in (1, 2, 3)]
    unsigned = [value % 2**64 for value in mixed(torch.tensor(increments)).tolist()]
    assert unsigned == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_an_entry_is_dropped_with_probability_p_and_the_rest_are_scaled(p: float) -> None:
    out = by_rows_own(nn.Dropout(p))(torch.ones(100, 1000))
    share = (out == 0).double().mean().item()
    assert abs(share - p) < 5 * (p * (1 - p) / out.numel()) ** 0.5
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1.0).div(1 - p).item()}
    neighbours = (out[:, 1:] == 0).eq(out[:, :-1] == 0).double().mean().item()
    assert abs(neighbours - p**2 - (1 - p) ** 2) < 0.01, "neighbours are independent"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_torchs_in_all_but_the_draws(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    dims = {nn.Dropout1d: 3, nn.Dropout3d: 5}.get(kind, 4)
    x = torch.randn(64, 32, *[4] * (dims - 2), dtype=torch.float64)
    theirs, ours = kind(0.25), by_rows_own(kind(0.25))
    assert isinstance(ours, kind)

    def scale_and_limit(out: Tensor) -> list[float]:
        """Slope and offset of what stays, and the values of what does not: equal for equal formulas."""
        changed = out.flatten()
        kept = (x.flatten()[None, :2000] - x.flatten()[:2000, None]).abs() > 1
        slopes = (
            (changed[None, :2000] - changed[:2000, None]) / (x.flatten()[None, :2000] - x.flatten()[:2000, None])
        )[kept]
        return [slopes.median().item(), changed.mode().values.item()]

    assert scale_and_limit(ours(x)) == pytest.approx(scale_and_limit(theirs(x)), rel=1e-9)
    if kind not in (nn.Dropout, nn.AlphaDropout):
        lost = torch.isclose(ours(x), torch.tensor(scale_and_limit(theirs(x))[1], dtype=torch.float64)).flatten(2)
        assert torch.equal(lost.any(2), lost.all(2)) and 0.1 < lost.double().mean() < 0.4, "whole channels"
    ours.eval()
    assert torch.equal(ours(x), x)
    for p, expected in ((0.0, x), (1.0, kind(1.0)(x))):
        assert torch.equal(by_rows_own(kind(p))(x), expected)


def test_masks_differ_by_row_step_and_layer() -> None:
    ones = torch.ones(1, 4096)
    keys = {int(key) for step in range(3) for key in step_keys(torch.arange(3), torch.tensor(step))}
    assert len(keys) == 9
    masks = []
    for key in keys:
        two = nn.ModuleList([nn.Dropout(0.5), nn.Dropout(0.5)])
        set_keys(draw_by_row(two), torch.tensor(key))
        masks += [two[0](ones), two[1](ones)]
    for at, one in enumerate(masks):
        for other in masks[at + 1 :]:
            assert abs((one == other).double().mean().item() - 0.5) < 0.05


def test_a_subclass_of_a_users_own_stays_what_it_is() -> None:
    class Mine(nn.Dropout):
        pass

    assert draw_by_row(nn.Sequential(Mine(0.5))) == []


def test_a_row_with_dropout_is_the_same_at_every_k_and_resumes_bitwise(lab: Path) -> None:
    rows = [TrialConfig.parse({**TINY, "model": "steps:Dropout", "seed": seed}) for seed in (0, 1)]
    assert refusal(rows[0]) == "", "vmap takes it"
    together = list(train(rows))
    for row, config in enumerate(rows):
        alone = by_row(list(train([config])), 0)
        for epoch, expected in zip(by_row(together, row), alone, strict=True):
            assert epoch["train/loss"] == pytest.approx(expected["train/loss"], rel=1e-4), "the same masks"
    assert by_row(together, 0) != by_row(together, 1)
    first = next(train(rows))
    rest = list(train(rows, checkpoints=[report.checkpoint() for report in first]))
    assert by_row([first, *rest], 0) == by_row(together, 0)
    swapped = list(train(rows[::-1]))
    assert by_row(swapped, 1) == by_row(together, 0), "whatever its place"
    captured = list(train(rows, capture=lambda work: work))
    assert by_row(captured, 0) == by_row(together, 0)


def test_a_layer_that_is_used_twice_draws_twice_and_the_same_in_both_passes() -> None:
    layer, ones = by_rows_own(nn.Dropout(0.5)), torch.ones(1, 4096)
    at_x = [layer(ones), layer(ones)]
    assert abs((at_x[0] == at_x[1]).double().mean().item() - 0.5) < 0.05
    by_rows_own(layer)  # as before every pass
    assert all(torch.equal(layer(ones), mask) for mask in at_x)
