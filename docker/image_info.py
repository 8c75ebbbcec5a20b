"""The last step of a build: refuse the wrong build of torch, and write what the image is.

    image_info.py TARGET REQUIREMENTS OUT

reads the build arguments COMMIT, DIRTY and ALLOW_CUDA_TORCH from the environment and writes
`{"commit": ..., "dirty": ..., "lock": sha256 of REQUIREMENTS, "target": TARGET}`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path


def torch_problem(target: str, version: str, cuda: str | None, allow_cuda: bool) -> str | None:
    """Why this build of torch is wrong for the target; None if it is right."""
    if target == "cpu" and cuda is not None and not allow_cuda:
        return (
            f"torch {version} is a build for CUDA {cuda}, which has no place in the target cpu; expected the CPU build "
            "that requirements-cpu.txt names, or --build-arg ALLOW_CUDA_TORCH=1"
        )
    if target == "cuda" and cuda is None:
        return f"torch {version} is a build without CUDA, which the target cuda needs"
    return None


def image_info(target: str, requirements: Path, commit: str, dirty: str) -> dict[str, str | bool]:
    """What the image is; `ValueError` if a build argument is missing or wrong."""
    if not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", commit):
        raise ValueError(f"COMMIT={commit!r}: expected --build-arg COMMIT=$(git rev-parse HEAD)")
    if dirty not in {"true", "false"}:
        raise ValueError(f"DIRTY={dirty!r}: expected --build-arg DIRTY=true or DIRTY=false")
    lock = hashlib.sha256(requirements.read_bytes()).hexdigest()
    return {"commit": commit, "dirty": dirty == "true", "lock": lock, "target": target}


def main(target: str, requirements: str, out: str) -> None:
    """Exit with a message if the image must not be built."""
    import torch

    allow_cuda = os.environ.get("ALLOW_CUDA_TORCH") == "1"
    problem = torch_problem(target, torch.__version__, torch.version.cuda, allow_cuda)
    if problem:
        sys.exit(problem)
    try:
        info = image_info(target, Path(requirements), os.environ.get("COMMIT", ""), os.environ.get("DIRTY", ""))
    except ValueError as error:
        sys.exit(str(error))
    Path(out).write_text(json.dumps(info) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
