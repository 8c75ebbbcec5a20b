"""What is told of Ray's own troubles."""

from __future__ import annotations

import pytest

from polysweep.sweeps.scheduling.ray_errors import cause_of, is_memory, one_line_errors
from polysweep.sweeps.store.files import StoreError
from polysweep.trainer.errors import UserError


def test_rays_errors_are_one_line_with_their_cause_first() -> None:
    from ray.exceptions import OutOfMemoryError, RayActorError, RaySystemError

    text = (
        "2 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 127.0.0.1, ID: 02de) "
        "was 5.34GB used / 23.54GB limit (0.226838)\nOOM kill reason: ...\n" + "Refer to the documentation. " * 50
    )
    memory = OutOfMemoryError(text)
    wrapped = RuntimeError(f"Caught unexpected exception: {text}")
    wrapped.__cause__ = memory
    assert is_memory(memory) and is_memory(wrapped)
    assert cause_of(wrapped) == "a machine is short of memory (5.34GB used / 23.54GB)"
    assert not is_memory(RuntimeError("CUDA out of memory")), "that is the device's, and the worker's to mend"
    for error, words in (
        (wrapped, "Ray: a machine is short of memory (5.34GB used / 23.54GB); rerun the same command to resume"),
        (RaySystemError("the raylet\nis gone"), "Ray: System error: the raylet; rerun the same command to resume"),
        (RayActorError(), "Ray: a worker process died; rerun the same command to resume"),
    ):
        with pytest.raises(UserError) as told, one_line_errors():
            raise error
        assert str(told.value).startswith(words) and "\n" not in str(told.value) and len(str(told.value)) < 400


def test_what_tune_says_of_a_worker_is_cut_to_its_cause() -> None:
    """Tune numbers failures, and has a text where it cannot unpickle an error."""
    traceback = (
        "Failure # 1 (occurred at 1)\nray::StackTrainable.train()\n  File x\nRuntimeError: can't allocate memory\n"
    )
    killed = (
        "Failure # 2\nThe actor died.\nWorker unexpectedly exits with a connection error code 2. End of file. "
        + "x" * 999
    )
    assert cause_of(RuntimeError(traceback)) == "RuntimeError: can't allocate memory"
    assert cause_of(RuntimeError(killed)).startswith("a worker process was killed, by a user or by the kernel")
    assert len(cause_of(RuntimeError("x" * 1287))) < 310


def test_an_error_that_is_not_rays_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), one_line_errors():
        _ = 1 / 0
    with pytest.raises(UserError, match="cannot be written"), one_line_errors():
        try:
            raise StoreError("store: cannot be written")
        except StoreError as error:
            raise RuntimeError("Tune has wrapped it") from error
