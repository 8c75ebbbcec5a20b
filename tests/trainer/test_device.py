"""What a device can do, and memory that stays in the process."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch

from polysweep.trainer import device
from polysweep.trainer.device import check_device, check_precision
from polysweep.trainer.errors import ConfigError, UserError


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


@pytest.mark.parametrize(
    ("version", "has_driver", "reason"),
    [
        ("2.13.0+cpu", True, "torch 2.13.0+cpu is a build without CUDA; expected a CUDA build"),
        ("2.14.1", False, "libcuda.so.1, the library of NVIDIA's driver, is not found; a container needs --gpus all"),
        ("2.14.1+cu130", True, ""),
        ("2.14.1+rocm7.1", False, ""),
    ],
)
def test_what_a_gpu_lacks_is_named(
    monkeypatch: pytest.MonkeyPatch, version: str, has_driver: bool, reason: str
) -> None:
    def load(name: str) -> None:
        if not has_driver:
            raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(device.metadata, "version", lambda _: version)
    monkeypatch.setattr(device.ctypes, "CDLL", load)
    assert device.missing_cuda().startswith(reason) and bool(device.missing_cuda()) == bool(reason)
    if reason:
        with pytest.raises(UserError, match=rf"--device: 'cuda:1' is not on this machine: {re.escape(reason)}"):
            check_device("cuda:1")


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
