"""Folders that belong to a living process."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from polysweep.trainer import wandb_runs as tracking
from polysweep.trainer.folders import OwnFolder
from polysweep.trainer.wandb_runs import Online

pytestmark = pytest.mark.usefixtures("fresh_client")


def test_folders_of_processes_that_have_ended_are_removed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with OwnFolder(tmp_path, tracking.FOLDER) as living, OwnFolder(tmp_path, tracking.FOLDER) as dead:
        dead._lock.close()  # as the end of its process does
        Online()
        assert [path.name for path in tmp_path.iterdir()] == [living.path.name]
    assert not list(tmp_path.iterdir())
