"""The names of this machine's devices, read without torch."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path


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
