"""A checkpoint as bytes: what comes back, and what is refused."""

from __future__ import annotations

import io

import pytest
import torch

from polysweep.trainer.checkpoint import CHECKPOINT_FORMAT, DamagedError, NewerError, dumps, loads


def test_what_is_loaded_is_bitwise_what_was_saved() -> None:
    """Also the sign of a zero, and numbers that are not finite."""
    row = {
        "theta": torch.tensor([0.0, -0.0, float("nan"), float("-inf"), 1 / 3], dtype=torch.float64),
        "counters": torch.tensor([2**40]),
        "none": torch.zeros(0),
        "every second": torch.arange(6.0)[::2],
    }
    history = [{"epoch": 1, "val/top1": None, "test/top1": 0.5, "partial": False}]
    copy = loads(dumps({"format": CHECKPOINT_FORMAT, "row": row, "history": history}))
    assert copy.keys() == {"format", "row", "history"} and copy["history"] == history
    for name, tensor in row.items():
        assert copy["row"][name].dtype == tensor.dtype and copy["row"][name].shape == tensor.shape
        assert copy["row"][name].numpy().tobytes() == tensor.numpy().tobytes()


def test_a_newer_format_is_not_called_damaged() -> None:
    with pytest.raises(NewerError) as raised:
        loads(dumps({"format": CHECKPOINT_FORMAT + 1, "fields": "of another time"}))
    assert raised.value.args == (CHECKPOINT_FORMAT + 1,)


def test_a_file_of_torch_that_is_no_checkpoint_is_called_so() -> None:
    for content in ({"row": {}}, [1], torch.zeros(2)):
        file = io.BytesIO()
        torch.save(content, file)
        with pytest.raises(DamagedError, match=r"^it is not a checkpoint of polysweep: it has no format$"):
            loads(file.getvalue())


@pytest.mark.parametrize("length", [0, 100, -1])
def test_a_file_that_was_cut_cannot_be_read(length: int) -> None:
    content = dumps({"format": CHECKPOINT_FORMAT, "row": {"theta": torch.zeros(3)}})
    with pytest.raises(DamagedError, match=r"^it cannot be read: \w+: ") as raised:
        loads(content[:length])
    assert len(str(raised.value).splitlines()) == 1
