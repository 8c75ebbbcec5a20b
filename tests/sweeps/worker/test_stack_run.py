"""One stack against the Store: what it leaves there, and how it goes on."""

from __future__ import annotations

import pytest

from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.config import TrialConfig
from tests.support.results import histories, records
from tests.support.stack_jobs import finish, job


def test_a_finished_stack_leaves_config_record_history_checkpoint_and_no_claim(trained: str) -> None:
    finish(job(trained, {}, {"seed": 1}))
    store = Store(trained)
    for trial_id, record in records(trained).items():
        assert record["outcome"] == "finished"
        assert (record["width"], record["epoch"], record["claim"]) == (2, 3, 1)
        assert record["provenance"]["threads"] == 1 and record["provenance"]["versions"]["torch"]
        assert TrialConfig.parse(store.config(trial_id) or {}).trial_id == trial_id
        assert [row["epoch"] for row in store.history(trial_id)] == [1, 2, 3]
        assert store.owner(trial_id) is None
        assert store.files.exists(f"trials/{trial_id}/checkpoint.pt")


def test_a_finished_trial_is_not_run_again(trained: str) -> None:
    finish(job(trained, {}, {"seed": 1}))
    files = Store(trained).files
    paths = [
        f"trials/{trial_id}/{name}" for trial_id in records(trained) for name in ("history.parquet", "record.json")
    ]
    before = files.read_many(paths)
    run = StackRun(job(trained, {}, {"seed": 1}))
    assert run.advance() is None
    run.close()
    assert files.read_many(paths) == before and all(before.values())


def test_an_interrupted_stack_keeps_every_completed_epoch_and_continues_bitwise(trained: str) -> None:
    finish(job(f"{trained}/whole", {}, {"seed": 1}))
    run = StackRun(job(f"{trained}/parts", {}, {"seed": 1}, checkpoint_seconds=3600))
    run.advance()
    run.advance()
    run.close()
    assert {r["outcome"] for r in records(f"{trained}/parts").values()} == {"running"}
    assert {r["epoch"] for r in records(f"{trained}/parts").values()} == {2}
    states = [Store(f"{trained}/parts").state(t) for t in records(f"{trained}/parts")]
    assert [(s.state, s.epoch) for s in states] == [("interrupted", 2)] * 2
    finish(job(f"{trained}/parts", {"seed": 1}, {}, epoch=2))
    assert histories(f"{trained}/parts") == histories(f"{trained}/whole")
    for record in records(f"{trained}/parts").values():
        assert [s["from_epoch"] for s in record["sessions"]] == [0, 2]


def test_a_trial_that_has_moved_on_since_the_plan_is_trained_from_where_it_stands(trained: str) -> None:
    """Also when a crash came between checkpoint and record, and the record lags: the stack's rows are at two epochs."""
    finish(job(f"{trained}/whole", {}, {"seed": 1}))
    run = StackRun(job(f"{trained}/parts", {}, {"seed": 1}, checkpoint_seconds=0))
    run.advance()
    run.close()
    store = Store(f"{trained}/parts")
    ahead, lagging = sorted(records(f"{trained}/parts"))
    store.write_record(lagging, {**(store.record(lagging) or {}), "epoch": 0})
    for name in ("checkpoint.pt", "checkpoint-before.pt"):
        store.files.remove(f"trials/{lagging}/{name}")
    finish(job(f"{trained}/parts", {}, {"seed": 1}, epoch=0))
    assert histories(f"{trained}/parts") == histories(f"{trained}/whole")
    starts = {t: [s["from_epoch"] for s in r["sessions"]] for t, r in records(f"{trained}/parts").items()}
    assert starts == {ahead: [0, 1], lagging: [0, 0]}


def test_a_worker_whose_claim_was_taken_over_writes_nothing_more(trained: str) -> None:
    run = StackRun(job(trained, {}, {"seed": 1}))
    run.advance()
    store = Store(trained)
    lost = sorted(records(trained))[0]
    kept = sorted(records(trained))[1]
    taken = store.claim(lost, supersedes=1)
    assert taken is not None
    store.write_record(lost, {**(store.record(lost) or {}), "claim": 2, "mark": "the new holder's"})
    before = store.files.read(f"trials/{lost}/record.json")
    while run.advance() is not None and not run.is_over:
        pass
    run.close()
    assert store.files.read(f"trials/{lost}/record.json") == before
    assert taken.is_held() and store.owner(lost) is not None
    assert records(trained)[kept]["outcome"] == "finished"


def test_an_exception_of_the_training_is_kept_in_the_record(trained: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from polysweep.trainer.stack import stack

    def broken(*_: object) -> None:
        raise RuntimeError("the dog ate it")

    monkeypatch.setattr(stack.Stack, "measure", broken)
    finish(job(trained, {}, {"seed": 1}))
    for record in records(trained).values():
        assert record["outcome"] == "failed"
        assert "the dog ate it" in record["error"] and "Traceback" in record["error"]
