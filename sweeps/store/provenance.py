"""What besides its config a trial's numbers may depend on: commit, versions, device, threads, image."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import polysweep
from polysweep import __version__
from polysweep.trainer.config import NUMERICS
from polysweep.trainer.device import device_model


def image() -> dict[str, Any] | None:
    """What is known of the image that this process runs in: commit, dirty, lock, target; None outside of one.

    Its file is named by POLYSWEEP_IMAGE_INFO.
    """
    path = os.environ.get("POLYSWEEP_IMAGE_INFO")
    try:
        info = json.loads(Path(path).read_text()) if path else None
    except (OSError, ValueError):
        return None
    return info if isinstance(info, dict) else None


@lru_cache(maxsize=4)
def provenance(device: str, threads: int) -> dict[str, Any]:
    """What besides the config a trial's numbers may depend on."""
    return {
        "numerics": NUMERICS,
        "commit": commit(),
        "versions": {
            "python": platform.python_version(),
            "polysweep": __version__,
            **{name: metadata.version(name) for name in ("torch", "numpy", "ray", "wandb")},
        },
        "device": device,
        "device_model": device_model(device),
        "threads": threads,
        "image": image(),
    }


THIS_VERSION: Final = {"polysweep": __version__, "numerics": NUMERICS}
"""What driver and workers have to agree on."""


def version_refusal(driver: Mapping[str, Any]) -> str:
    """Why a worker that runs this code is refused by a driver of another version, both named; else empty."""
    if driver == THIS_VERSION:
        return ""
    here, there = version_text(THIS_VERSION), version_text(driver)
    return f"the worker on {platform.node()} runs {here}, the driver {there}: install the same on both"


def version_text(version: Mapping[str, Any]) -> str:
    """A version in words."""
    return f"polysweep {version['polysweep']} with NUMERICS {version['numerics']}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Where bitwise continuation is not promised: another device model or thread count, in words; else empty."""
    changed = [key for key in ("device_model", "threads") if key in old and old[key] != new[key]]
    return ", ".join(f"{key} {old[key]!r} before, {new[key]!r} now" for key in changed)


def source_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The kinds of own parts whose source has changed, each with its hash before and now."""
    before, now = old.get("sources", {}), new.get("sources", {})
    yield from ((kind, before[kind], now[kind]) for kind in before if before[kind] != now.get(kind, before[kind]))


def commit() -> str | None:
    """The commit of the checkout or image that the package runs from, with `+` if it has uncommitted changes.

    A submitted job reads it from POLYSWEEP_COMMIT.
    """
    if told := os.environ.get("POLYSWEEP_COMMIT"):
        return told
    if (built := image()) is not None:
        return f"{built.get('commit')}{'+' if built.get('dirty') else ''}"
    folder = Path(polysweep.__file__).resolve().parent.parent
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
