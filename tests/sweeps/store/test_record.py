"""How the record of a trial begins, and what is noted in it after the end."""

from __future__ import annotations

from pathlib import Path

from polysweep.sweeps.store.record import mark_wandb
from polysweep.sweeps.store.store import Store
from tests.support.claimed import ID, RECORD


def test_a_note_of_the_server_never_undoes_what_a_worker_has_written(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    claim = store.claim(ID)
    assert claim is not None
    store.write_record(ID, {**RECORD, "outcome": "failed"}, claim.fence)
    mark_wandb(Store(str(tmp_path)), ID, "online", store.claims.lease())
    assert "wandb" not in (store.record(ID) or {}), "somebody runs it"
    claim.release()
    mark_wandb(store, ID, "online", store.claims.lease())
    assert (store.record(ID) or {})["wandb"] == "online"
