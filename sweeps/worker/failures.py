"""What an exception of the training means for a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Failure:
    """What came instead of an epoch: too little memory for K rows, none of which has started, or a trial's error."""

    is_too_wide: bool
    traceback: str


def verdict(error: BaseException, width: int, *, has_epochs: bool) -> Literal["too wide", "retry", "failed"]:
    """What an exception of the training means for a stack of `width` rows, some of which may have epochs already.

    Out of memory: a stack without epochs can be halved; one with epochs keeps its K, and is retried when the device has
    more. Everything else is the fault of a trial.
    """
    if not _is_out_of_memory(error):
        return "failed"
    if has_epochs:
        return "retry"
    return "too wide" if width > 1 else "failed"


def _is_out_of_memory(error: BaseException) -> bool:
    """torch has a class for it; cuBLAS, CUDA graphs and the CPU's allocator only say so."""
    words = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
    return type(error).__name__ == "OutOfMemoryError" or any(word in str(error) for word in words)
