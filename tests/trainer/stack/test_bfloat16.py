"""bfloat16 products, float32 all else; layouts and switches of torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.device import check_device, check_precision
from polysweep.trainer.errors import ConfigError, UserError
from polysweep.trainer.stack.bfloat16 import use_bfloat16
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.images import Images, Normalisation
from polysweep.trainer.train import train, use_settings_of
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


@pytest.mark.parametrize("width", [1, 2])
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


def test_a_device_without_the_precision_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"precision: tf32 needs an NVIDIA GPU since Ampere, not this cpu"):
        check_precision("tf32", "cpu")
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with pytest.raises(ConfigError, match=r"precision: bfloat16 needs a CPU with AVX-512"):
        check_precision("bfloat16", "cpu")
    check_precision("float64", "cpu")


def test_an_unknown_device_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"--device: 'gpu' is not on this machine; expected one of cpu"):
        check_device("gpu")


def test_tf32_is_off_unless_the_config_asks_for_it() -> None:
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    try:
        for precision, expected in (("tf32", True), ("float32", False), ("bfloat16", False)):
            use_settings_of(precision)
            assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is expected
        assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_precision_is_part_of_a_trial() -> None:
    values = {"task": "digits", "model": "mlp", "optimizer": "sgd", "scheduler": "polyak"}
    ids = {TrialConfig.parse({**values, "precision": p}).trial_id for p in ("float32", "bfloat16", "float64", "tf32")}
    assert len(ids) == 4


FAULTS = """
import ctypes, resource, sys, torch
from polysweep.trainer.device import M_MMAP_THRESHOLD, keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit("glibc did not take it")
if sys.argv[1] == "given back":  # by itself glibc does it or not, as the blocks happen to lie
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**17)
def step():
    return [torch.zeros(2_000_000) for _ in range(8)]
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_stays_in_the_process() -> None:
    """Eight tensors of 8 MB, ten times: 156,000 pages are asked for again, or none."""
    faults = {
        how: int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout)
        for how in ("kept", "given back")
    }
    assert faults["kept"] < 1000 < faults["given back"]
