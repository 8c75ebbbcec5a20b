"""What the W&B server has of the trials, and what is missing of them."""

from __future__ import annotations

import pytest

from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import upload
from polysweep.sweeps.tracking.wandb_server import Server, ServerRun
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


@pytest.mark.parametrize(
    ("run", "asked", "missing"),
    [
        (ServerRun(3, 3, "finished", frozenset({"s"}), "finished"), (3, "finished", ["s"]), ""),
        (ServerRun(2, 2, "finished", frozenset({"s"}), "finished"), (3, "finished", ["s"]), "rows"),
        (ServerRun(3, 3, "finished", frozenset({"s"}), "finished"), (3, "diverged", ["s"]), "end"),
        (ServerRun(3, 3, "crashed", frozenset({"s"}), "finished"), (3, "finished", ["s"]), "end"),
        (ServerRun(3, 3, "failed", frozenset({"s"}), "failed"), (3, "failed", ["s"]), ""),
        (ServerRun(3, 3, "failed", frozenset({"s"}), "failed"), (3, "running", ["s"]), "end"),
        (ServerRun(3, 3, "preempted", frozenset({"s"}), None), (3, "running", ["s"]), ""),
        (ServerRun(3, 3, "finished", frozenset({"s"}), "finished"), (3, "finished", ["s", "t"]), "tags"),
    ],
)
def test_what_a_run_lacks_of_its_trial(run: ServerRun, asked: tuple[int, str, list[str]], missing: str) -> None:
    assert run.lacks(*asked) == missing
    assert not run.has_hole and not run.has_repeats


def test_a_hole_and_a_repeat_are_seen_by_the_last_rows_step() -> None:
    hole, repeat = (ServerRun(rows, 3, "finished", frozenset(), "finished") for rows in (2, 4))
    assert (hole.has_hole, hole.has_repeats) == (True, False)
    assert (repeat.has_hole, repeat.has_repeats) == (False, True)
