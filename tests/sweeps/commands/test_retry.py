"""Failed trials become interrupted ones, which keep their checkpoints and their errors."""

from __future__ import annotations

import pytest

from polysweep.sweeps.commands.retry import retry
from polysweep.sweeps.store.record import BEGUN
from polysweep.sweeps.store.store import Store
from tests.support.wandb_runs import CONFIG, put
from tests.support.wandb_runs import store as store

pytestmark = pytest.mark.usefixtures("fresh_client")


def test_a_trial_of_a_server_that_fails_and_is_tried_again_offline_is_left_to_sync(store: Store) -> None:
    put(store, 1, "failed", wandb="online")
    assert retry(store, {CONFIG.trial_id: 1}) == 1
    assert (store.record(CONFIG.trial_id) or {})["wandb"] == BEGUN


def test_a_trial_keeps_its_k_once_it_has_an_epoch_and_gets_the_planned_one_before(store: Store) -> None:
    for epoch, kept in ((0, 2), (1, 4)):
        put(store, epoch, "failed", width=4)
        assert retry(store, {CONFIG.trial_id: 2}) == 1
        assert (store.record(CONFIG.trial_id) or {})["width"] == kept
