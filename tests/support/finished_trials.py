"""Six finished trials in a Store, for uploads."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.store.store import Store
from tests.support.wandb_runs import CONFIG, put

CONFIGS = [CONFIG.model_copy(update={"seed": seed}) for seed in range(6)]
FLATS = {config.trial_id: config.flat() for config in CONFIGS}
IDS = list(FLATS)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Six finished trials."""
    store = Store(str(tmp_path / "store"))
    for config in CONFIGS:
        put(store, 3, config=config)
    return store
