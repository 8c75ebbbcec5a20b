"""What the W&B server has of the trials, and what is missing of them."""

from __future__ import annotations

import pytest

from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import upload
from polysweep.sweeps.tracking.wandb_server import Server
from polysweep.trainer.errors import UserError
from tests.support.finished_trials import FLATS, IDS
from tests.support.finished_trials import store as store
from tests.support.loopback_wandb import Wandb

pytestmark = pytest.mark.usefixtures("fresh_client")


def test_an_answer_that_cannot_be_read_is_not_taken_for_nothing(store: Store, wandb_server: Wandb) -> None:
    """A ValueError in a look-up says that there is no such project only where it says so."""
    wandb_server.load("polysweep", [{"name": IDS[0], "history": ['{"_step": "one"}'], "complete": True}])
    with pytest.raises(UserError, match="the W&B server does not list the runs of lab/polysweep"):
        Server().runs(IDS)
    with pytest.raises(UserError, match="does not list"):
        upload(store, FLATS)
    assert len(wandb_server.dump()["runs"]) == 1, "nothing was uploaded"
