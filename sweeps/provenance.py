"""What besides its config a trial's numbers may depend on: commit, versions, device, threads, image."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from trainer.config import NUMERICS


@lru_cache(maxsize=4)
def provenance(device: str, threads: int) -> dict[str, Any]:
    """What besides the config a trial's numbers may depend on."""
    return {
        "numerics": NUMERICS,
        "commit": _commit(),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("polysweep", "torch", "numpy", "ray", "wandb")},
        },
        "device": device,
        "device_model": _device_model(device),
        "threads": threads,
        "image": os.environ.get("POLYSWEEP_IMAGE"),
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Where bitwise continuation is not promised: another device model or thread count, in words; else empty."""
    changed = [key for key in ("device_model", "threads") if key in old and old[key] != new[key]]
    return ", ".join(f"{key} {old[key]!r} before, {new[key]!r} now" for key in changed)


def _device_model(device: str) -> str:
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


def _commit() -> str | None:
    """The commit of the checkout that the package runs from, `+` where it has uncommitted changes."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        answers = [
            subprocess.run(
                ["git", "-C", str(folder), *command], capture_output=True, text=True, timeout=10, check=True
            ).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return answers[0] + ("+" if answers[1] else "")
