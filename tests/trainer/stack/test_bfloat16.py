"""bfloat16 products, float32 all else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from polysweep.trainer.errors import ConfigError
from polysweep.trainer.stack.bfloat16 import use_bfloat16
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.images import Images, Normalisation
from polysweep.trainer.train import train
from tests.support.stacks import config
from tests.support.training import by_row, configs


def dtypes_of_a_step(width: int, precision: str) -> tuple[set[torch.dtype], set[torch.dtype], Stack]:
    """What the first pass shows: what convolutions and linear layers return, and the batch norms' running means."""
    rows = [config(precision=precision, seed=n) for n in range(width)]
    images = Images(torch.randint(0, 17, (64, 8, 8, 1), dtype=torch.uint8), torch.arange(64) % 10)
    task = Classification(images, None, images, Normalisation(torch.tensor([8.0]), torch.tensor([4.0])), 10)
    stack = Stack(rows, task)
    stack.step_sizes.start_epoch(0)
    products: set[torch.dtype] = set()
    statistics: set[torch.dtype] = set()

    def look(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if isinstance(module, nn.BatchNorm2d):
            statistics.add(module.running_mean.dtype)  # type: ignore[union-attr]
        else:
            products.add(output.dtype)

    for layer in stack._oracle._module.modules():  # type: ignore[attr-defined]
        if isinstance(layer, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
            layer.register_forward_hook(look)
    batch = stack.task.mini_batch(torch.arange(64).expand(width, 64), None, None)
    done = stack.step(*batch, torch.tensor(0)).result
    assert done.x.loss.dtype == done.x.grad.dtype == done.x.logits.dtype == stack.dtype
    assert bool(torch.isfinite(done.x.grad).all())
    return products, statistics, stack


@pytest.mark.parametrize("width", [1, 4])
def test_bfloat16_is_that_of_products_alone(width: int) -> None:
    products, statistics, stack = dtypes_of_a_step(width, "bfloat16")
    assert products == {torch.bfloat16}
    assert statistics == {torch.float32}
    assert stack.theta.dtype == stack.buffers.floats.dtype == torch.float32


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_other_precisions_are_those_of_everything(width: int, precision: str) -> None:
    dtype = getattr(torch, precision)
    assert dtypes_of_a_step(width, precision)[:2] == ({dtype}, {dtype})


@pytest.mark.parametrize("width", [2, pytest.param(1, marks=pytest.mark.long)])
def test_bfloat16_learns_nearly_what_float32_does(width: int) -> None:
    """Eight bits of mantissa: the losses of an epoch differ by percents, and are not equal."""
    losses = {}
    for precision in ("float32", "bfloat16"):
        rows = configs(*({"seed": n} for n in range(width)), model="resnet8", precision=precision, epochs=2)
        losses[precision] = [row["train/loss"] for n in range(width) for row in by_row(list(train(rows)), n)]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.1)
    assert losses["bfloat16"] != losses["float32"]


def test_bfloat16_continues_bitwise() -> None:
    rows = configs({}, model="resnet8", precision="bfloat16", epochs=2)
    whole = list(train(rows))
    first = next(train(rows))
    rest = list(train(rows, checkpoints=[first[0].checkpoint()]))
    assert by_row([first, *rest], 0) == by_row(whole, 0)


def test_a_layer_that_does_not_know_bfloat16_is_named() -> None:
    with pytest.raises(ConfigError, match=r"bfloat16 is not for a LayerNorm, which model 'x' has; its layers:"):
        use_bfloat16(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), "model 'x'", stacked=False)
