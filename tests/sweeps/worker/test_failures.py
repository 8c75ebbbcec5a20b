"""What an exception of the training means for a stack."""

from __future__ import annotations

import pytest
import torch

from polysweep.sweeps.worker.failures import verdict

MEMORY = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")


@pytest.mark.parametrize(
    ("error", "width", "has_epochs", "expected"),
    [
        (ValueError("a bug of a user's own part"), 4, False, "failed"),
        (SystemExit(3), 4, True, "failed"),
        (MEMORY, 4, False, "too wide"),
        (MEMORY, 4, True, "retry"),
        (MEMORY, 1, True, "retry"),
        (MEMORY, 1, False, "failed"),
        (torch.OutOfMemoryError("no words"), 2, False, "too wide"),
    ],
)
def test_only_a_stack_without_epochs_is_halved(
    error: BaseException, width: int, has_epochs: bool, expected: str
) -> None:
    assert verdict(error, width, has_epochs=has_epochs) == expected
