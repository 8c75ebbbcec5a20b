"""One stack against the Store: what it leaves there, and how it goes on."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from polysweep.sweeps.job import Job
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker import trial_run as rows_module
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.history import TIMING_COLUMNS
from tests.support.project import TINY
from tests.support.results import records
from tests.support.waiting import wait_for


def job(store: str, *changes: dict, width: int = 2, **settings: object) -> Job:
    configs = [TrialConfig.parse({**TINY, **change}).canonical() for change in changes]
    return Job(store, tuple(configs), width, **{"epoch": 0, **settings})


def finish(job: Job) -> None:
    run = StackRun(job)
    try:
        while run.advance() is not None and not run.is_over:
            pass
    finally:
        run.close()


def histories(store: str) -> dict[str, list[dict]]:
    found = {}
    for trial_id in records(store):
        rows = Store(store).history(trial_id)
        found[trial_id] = [{k: v for k, v in row.items() if k not in TIMING_COLUMNS} for row in rows]
    return found


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


def test_keep_none_removes_the_checkpoint_after_the_end(trained: str) -> None:
    finish(job(trained, {}, {"seed": 1}, keep="none"))
    assert len(records(trained)) == 2
    assert not any(Store(trained).files.exists(f"trials/{trial_id}/checkpoint.pt") for trial_id in records(trained))


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("metric", [("test/loss", "minimize"), ("gamma/mean", "maximize")])
def test_keep_best_leaves_the_checkpoint_of_the_best_epoch(
    trained: str, interrupted: bool, metric: tuple[str, str]
) -> None:
    """Also where the best epoch lies before an interruption."""
    settings = {"keep": "best", "metric": metric[0], "goal": metric[1]}
    rows = [{"epochs": 6}, {"epochs": 6, "seed": 1}]
    if interrupted:
        run = StackRun(job(trained, *rows, **settings))
        for _ in range(4):
            run.advance()
        run.close()
    finish(job(trained, *rows, epoch=4 if interrupted else 0, **settings))
    for trial_id in records(trained):
        values = [row[metric[0]] for row in Store(trained).history(trial_id)]
        kept = torch.load(
            io.BytesIO(Store(trained).files.read(f"trials/{trial_id}/checkpoint.pt") or b""), weights_only=True
        )
        assert kept["epoch"] == 1 + values.index(min(values) if metric[1] == "minimize" else max(values))


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


def test_what_is_due_is_stored_while_the_next_epoch_is_trained(trained: str) -> None:
    """The epoch in flight may last for ever; the one before it is safe after `checkpoint_seconds`."""
    run = StackRun(job(trained, {"epochs": 50}, {"seed": 1, "epochs": 50}, checkpoint_seconds=0.2))
    run.advance()
    wait_for(lambda: all(r["epoch"] == 1 for r in records(trained).values()), 10)
    run.close()


def test_history_beyond_the_checkpoint_is_dropped_on_continuing(trained: str) -> None:
    finish(job(f"{trained}/whole", {}, {"seed": 1}))
    run = StackRun(job(f"{trained}/parts", {}, {"seed": 1}))
    run.advance()
    run.close()
    store = Store(f"{trained}/parts")
    for trial_id in records(f"{trained}/parts"):  # as after a crash between the two writes
        store.write_history(trial_id, Store(f"{trained}/whole").history(trial_id)[:2])
    finish(job(f"{trained}/parts", {}, {"seed": 1}, epoch=1))
    assert histories(f"{trained}/parts") == histories(f"{trained}/whole")


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


@pytest.mark.parametrize("lr", [0.05, 1e30])
@pytest.mark.parametrize("moment", ["write_history", "write_checkpoint", "write_record"])
def test_a_kill_in_the_middle_of_the_last_save_is_made_good(
    trained: str, monkeypatch: pytest.MonkeyPatch, lr: float, moment: str
) -> None:
    """Of a trial that finishes and of one that diverges, before each of the writes of its end."""
    rows = [{"scheduler": "constant", "lr": lr, "epochs": 1}, {"scheduler": "constant", "lr": lr / 2, "epochs": 1}]
    finish(job(f"{trained}/whole", *rows))

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    run = StackRun(job(f"{trained}/parts", *rows))
    assert run._start()
    target = rows_module if moment == "write_checkpoint" else Store
    with monkeypatch.context() as patch:
        patch.setattr(target, moment, killed)
        with pytest.raises(Killed):
            run.advance()
        run._unsaved.clear()  # a killed process saves nothing more
        run.close()
    for epoch in (0, 1):
        finish(job(f"{trained}/parts", *rows, epoch=epoch))
    assert histories(f"{trained}/parts") == histories(f"{trained}/whole")
    outcomes = {t: (r["outcome"], r["epoch"], r["diverged"]) for t, r in records(f"{trained}/parts").items()}
    assert outcomes == {t: (r["outcome"], r["epoch"], r["diverged"]) for t, r in records(f"{trained}/whole").items()}


def test_a_claim_made_since_the_plan_is_not_taken_over(trained: str) -> None:
    """Two launches read `new`; the faster one claims; the other's job says that it saw no claim."""
    slow = Store(trained)
    seen = slow.state("0123456789abcdef")
    assert Store(trained).claim("0123456789abcdef") is not None
    assert seen.generation == 0
    assert slow.claim("0123456789abcdef", supersedes=seen.generation) is None


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


def test_a_diverged_trial_records_where(trained: str) -> None:
    rows = [{"scheduler": "constant", "lr": 0.05}, {"scheduler": "constant", "lr": 1e30}]
    finish(job(trained, *rows))
    by_outcome = {r["outcome"]: r for r in records(trained).values()}
    assert set(by_outcome) == {"finished", "diverged"}
    assert by_outcome["diverged"]["diverged"]["epoch"] == 1
    history = Store(trained).history(by_outcome["diverged"]["trial_id"])
    assert [row["partial"] for row in history] == [True]
    assert by_outcome["diverged"]["diverged"]["step"] == history[0]["step"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "another trial's"])
def test_a_checkpoint_that_cannot_be_used_starts_the_trial_over_and_the_record_says_so(
    trained: str, damage: str
) -> None:
    finish(job(f"{trained}/whole", {}, {"seed": 1}))
    run = StackRun(job(f"{trained}/parts", {}, {"seed": 1}, checkpoint_seconds=0))
    run.advance()
    run.close()
    hit, other = sorted(records(f"{trained}/parts"))
    files, path = Store(f"{trained}/parts").files, f"trials/{hit}/checkpoint.pt"
    whole = files.read(path) or b""
    foreign = files.read(f"trials/{other}/checkpoint.pt") or b""
    damaged = {"truncated": whole[:-50], "empty": b"", "another trial's": foreign}
    files.write(path, damaged[damage]) if damage in damaged else files.remove(path)
    for epoch in (1, 0):
        finish(job(f"{trained}/parts", {}, {"seed": 1}, epoch=epoch))
    assert histories(f"{trained}/parts") == histories(f"{trained}/whole")
    assert records(f"{trained}/parts")[hit]["notes"][0].startswith("started over: ")
    assert records(f"{trained}/parts")[other]["notes"] == []


def test_a_trial_that_one_sweep_has_stopped_goes_on_in_another_and_stays_stopped_for_the_first(
    trained: str, spec_file: Callable[..., Path]
) -> None:
    early = {"type": "hyperband", "min_iter": 1}
    chosen = {"metric": {"name": "test/top1", "goal": "maximize"}, "variants": [{"scheduler": {"value": "polyak"}}],
              "tuned": [], "seeds": 2, "run_cap": 2}  # fmt: skip
    first = SweepSpec.load(spec_file("first.yaml", early_terminate=early, **chosen))
    second = SweepSpec.load(spec_file("second.yaml", launch={"stack": 2}, **chosen))
    store = Store(trained)
    ids = [trial.trial_id for trial in first.trials]
    configs = tuple(trial.config.canonical() for trial in first.trials)
    run = StackRun(Job(trained, configs, 2, sweeps=("first",), early=True))
    run.advance()
    assert store.search.decide("first", ids, 1, False, {"epoch": 1}) is False
    assert store.search.decide("first", ids, 1, True, {"epoch": 1}) is False, "a decision is made once"
    run.close()
    assert [(r["outcome"], r["epoch"]) for r in records(trained).values()] == [("stopped", 1)] * 2
    assert {state.state for state in store.states(first).values()} == {"stopped"}
    assert {(s.state, s.epoch) for s in store.states(second).values()} == {("interrupted", 1)}
    finish(Job(trained, configs, 2, epoch=1, sweeps=("second",)))
    finish(Job(f"{trained}/whole", configs, 2))
    assert histories(trained) == histories(f"{trained}/whole")
    assert {state.state for state in store.states(second).values()} == {"finished"}
    assert {state.state for state in store.states(first).values()} == {"stopped"}
