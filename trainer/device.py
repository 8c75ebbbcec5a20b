"""What a device can do, checked before anything is claimed, so that no trial fails for lack of it."""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final

from polysweep.trainer.errors import ConfigError, UserError


def check_device(device: str) -> None:
    """Raise `UserError` with the devices that there are if `device` is none of them."""
    if device == "cpu":
        return
    import torch

    if device.partition(":")[0] == "cuda" and (reason := missing_cuda()):
        raise UserError(f"--device: {device!r} is not on this machine: {reason}")
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    devices = ["cpu", *(["cuda"] if gpus else []), *gpus]
    if device not in devices:
        raise UserError(f"--device: {device!r} is not on this machine; expected one of {', '.join(devices)}")


def missing_cuda() -> str:
    """What a GPU of this machine lacks so that torch can use it, found without a GPU at hand; empty: nothing."""
    version = metadata.version("torch")
    if version.endswith("+cpu"):
        return f"torch {version} is a build without CUDA; expected a CUDA build, as in the image of the target cuda"
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        if "rocm" not in version:
            return (
                "libcuda.so.1, the library of NVIDIA's driver, is not found; a container needs --gpus all, and compute "
                "among its NVIDIA_DRIVER_CAPABILITIES"
            )
    return ""


def check_precision(precision: str, device: str) -> None:
    """Raise `ConfigError` if the device does not have the precision."""
    if precision in ("float32", "float64"):
        return
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        return  # whoever asked for a GPU is told that there is none
    if precision == "bfloat16" and device == "cpu":
        has_it = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    elif precision == "bfloat16":
        has_it = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_it = device != "cpu" and torch.cuda.get_device_capability(device) >= (8, 0)
    if not has_it:
        rule = {"bfloat16": "a CPU with AVX-512 or an NVIDIA GPU since Ampere", "tf32": "an NVIDIA GPU since Ampere"}
        raise ConfigError("precision", f"{precision} needs {rule[precision]}, not this {device}; use float32")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it lacked memory: torch has a class for that; cuBLAS, CUDA graphs and the CPU's allocator only say so."""
    words = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
    return type(error).__name__ == "OutOfMemoryError" or any(word in str(error) for word in words)


M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
LARGEST: Final = 32 * 2**20  # bytes; glibc allows no more


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Tell glibc not to give the memory of tensors back to the kernel; elsewhere nothing happens. Whether it took it.

    By default it gets every tensor of more than a few megabytes from the kernel again: 64,000 page faults in a step of
    ResNet-20 on CIFAR, a fifth of its time. The most memory that is used is the same.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1))


@lru_cache(maxsize=1)
def device_class() -> str:
    """The name of this machine's first GPU, as NVIDIA's driver gives it; needs no torch."""
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in path.read_text().splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return "a GPU that is not on this machine"


def device_model(device: str, *, imports: bool = True) -> str:
    """The name of the CPU or GPU; without `imports` by the driver's files alone, as a plan has to."""
    if device != "cpu" and not imports:
        return device_class()
    if device != "cpu":
        import torch

        return str(torch.cuda.get_device_name(device)) if torch.cuda.is_available() else "none"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def kind_of_device(device: str, threads: int, *, imports: bool = True) -> str:
    """What a measurement of speed holds for: the model of the GPU, or of the CPU with the number of torch's threads."""
    model = device_model(device, imports=imports)
    return model if device != "cpu" else f"{model}, {threads} thread{'' if threads == 1 else 's'}"
