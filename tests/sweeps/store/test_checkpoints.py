"""A trial's checkpoints: the newest one, and the one before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.store.files import NewerFormatError
from polysweep.sweeps.store.store import Store


def test_a_checkpoint_of_a_newer_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    import torch

    from polysweep.sweeps.store.checkpoints import read_checkpoint

    store = Store(str(tmp_path))
    torch.save({"format": 99}, tmp_path / "newer.pt")
    store.files.write("trials/ab/checkpoint.pt", (tmp_path / "newer.pt").read_bytes())
    with pytest.raises(NewerFormatError, match=r"ab/checkpoint\.pt has format 99"):
        read_checkpoint(store, {"trial_id": "ab", "width": 1, "epoch": 3})
