"""How the record of a trial begins, and what is noted in it after the end."""

from __future__ import annotations

from pathlib import Path

from polysweep.sweeps.spec.expansion import digits
from polysweep.sweeps.store.provenance import provenance
from polysweep.sweeps.store.record import first_record, mark_wandb
from polysweep.sweeps.store.store import Store
from tests.support.claimed import ID, RECORD
from tests.support.stack_jobs import job
from tests.support.wandb_runs import CONFIG


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


def test_a_record_that_is_continued_keeps_what_it_has_but_its_claim_and_provenance(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    claim = store.claim(CONFIG.trial_id)
    assert claim is not None
    stack = job(str(tmp_path), {}, width=3)
    first = first_record(None, CONFIG, claim, stack)
    assert (first["outcome"], first["width"], first["epoch"], first["epochs"]) == ("running", 3, 0, CONFIG.epochs)
    assert first["signature"] == digits(CONFIG.signature) and first["provenance"] == provenance("cpu", 1)
    assert "constants" not in first, "they are those of convex problems"
    earlier = {**first, "width": 2, "epoch": 2, "notes": ["a note"], "claim": 7, "provenance": {"threads": 4}}
    assert first_record(earlier, CONFIG, claim, stack) == {
        **earlier, "claim": claim.generation, "provenance": first["provenance"],
    }  # fmt: skip
