"""One trial of a stack: where it continues, which checkpoint it keeps, and how it ends."""

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
from tests.support.results import histories, records
from tests.support.stack_jobs import finish, job


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
