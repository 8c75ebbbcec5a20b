"""What an exception of the training means for a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polysweep.trainer.device import is_out_of_memory


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
    if not is_out_of_memory(error):
        return "failed"
    if has_epochs:
        return "retry"
    return "too wide" if width > 1 else "failed"
