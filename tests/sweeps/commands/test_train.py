"""`polysweep train`: a trial that has ended is not trained again, and one that is run elsewhere is not run beside."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from polysweep.sweeps.commands.train import _values, train_one
from polysweep.sweeps.job import RowProgress
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from polysweep.trainer.wandb_runs import run_name
from tests.support.wandb_runs import CONFIG, put
from tests.support.wandb_runs import store as store

NAME = f"{CONFIG.trial_id} ({run_name(CONFIG.flat())})"


def trained(store: Store, data: Path) -> tuple[int, str]:
    out = io.StringIO()
    console = Console(file=out, width=300)
    code = train_one(CONFIG, store, wandb="disabled", threads=1, device="cpu", data=str(data), console=console)
    return code, out.getvalue()


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("diverged", 0), ("failed", 1)])
def test_a_trial_that_has_ended_is_not_trained_again(store: Store, tmp_path: Path, outcome: str, code: int) -> None:
    put(store, 3, outcome)
    before = store.files.read(f"trials/{CONFIG.trial_id}/record.json")
    assert trained(store, tmp_path) == (code, f"{NAME}: nothing to start, it has {outcome}\n")
    assert store.files.read(f"trials/{CONFIG.trial_id}/record.json") == before


def test_a_trial_that_a_living_process_runs_is_refused_with_its_holder(store: Store, tmp_path: Path) -> None:
    claim = store.claim(CONFIG.trial_id)
    assert claim is not None
    with pytest.raises(UserError) as caught:
        trained(store, tmp_path)
    assert str(caught.value) == f"{NAME} is run by {store.owner(CONFIG.trial_id)}"
    assert claim.is_held() and store.record(CONFIG.trial_id) is None


def test_an_epoch_is_shown_by_what_was_measured_in_it() -> None:
    history = {"test/top1": 0.5, "train/loss": 1.25, "val/top1": None, "seconds": 3.0}
    assert _values(RowProgress("t", 1, "running", history)) == "train/loss 1.2500, test/top1 0.5000"
    assert _values(RowProgress("t", 1, "failed", {})) == ""
