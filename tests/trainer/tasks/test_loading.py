"""Loading a config's task, and checking a user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.rehearsal import rehearse
from tests.support.lab import lab as lab
from tests.support.project import TINY


def test_a_task_that_ignores_val_fraction_is_refused(lab: Path) -> None:
    with pytest.raises(ConfigError, match=r"'steps:keeps_all' holds out nothing for val_fraction = 0\.25"):
        rehearse(TrialConfig.parse({**TINY, "task": "steps:keeps_all", "batch_size": 4, "val_fraction": 0.25}))
