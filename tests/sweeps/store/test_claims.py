"""One lease per stack, and writes of a superseded worker that the storage itself refuses."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.store import claims as claims_module
from polysweep.sweeps.store.checkpoints import write_checkpoint
from polysweep.sweeps.store.claims import Claim
from polysweep.sweeps.store.files import Files, NotOursError
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker import heartbeat as watch_module
from polysweep.sweeps.worker.stack_run import StackRun
from tests.support.claimed import ID, RECORD, ROW, contents, job, write_all

WRITES: list[Callable[[Store, Claim], None]] = [
    lambda store, claim: store.write_history(ID, [ROW], claim.fence),
    lambda store, claim: write_checkpoint(store, ID, {"trial_id": ID}, claim.fence),
    lambda store, claim: store.write_record(ID, RECORD, claim.fence),
]


@pytest.mark.parametrize("write", WRITES, ids=["history", "checkpoint", "record"])
def test_every_write_of_a_superseded_claim_is_refused(root: str, write: Callable[[Store, Claim], None]) -> None:
    old, new = Store(root), Store(root)
    superseded = old.claim(ID)
    assert superseded is not None
    write_all(old, superseded, 1)
    successor = new.claim(ID, supersedes=1)
    assert successor is not None
    write_all(new, successor, 2)
    before = contents(new)
    with pytest.raises(NotOursError, match="another process has taken over"):
        write(old, superseded)
    assert contents(new) == before
    write_all(new, successor, 3)


def test_a_save_asks_for_no_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    claim = store.claim(ID)
    assert claim is not None

    def refuse(*_: object) -> None:
        raise AssertionError("a folder was listed")

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "scandir", refuse)
    write_all(store, claim, 1)


def test_a_stack_of_any_width_has_one_heartbeat(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "HEARTBEAT_SECONDS", 3600.0)
    run = StackRun(job(root, 5))
    run.advance()
    store = Store(root)
    (lease,) = store.files.names("leases")
    claims = [json.loads(store.files.read(f"trials/{i}/claim-1.json") or b"") for i in store.files.names("trials")]
    assert len(claims) == 5 and {f"{claim['lease']}.json" for claim in claims} == {lease}
    written: list[str] = []
    real = Files.write

    def noted(self: Files, path: str, *args: Any, **options: Any) -> None:
        written.append(path)
        real(self, path, *args, **options)

    monkeypatch.setattr(Files, "write", noted)
    assert run._lease is not None
    run._lease.beat()
    assert written == [f"leases/{lease}"]
    run.close()
    assert not store.files.names("leases")
    assert {store.state(trial_id).state for trial_id in store.files.names("trials")} == {"interrupted"}


def test_a_claim_is_exclusive_until_it_is_released(root: str) -> None:
    store = Store(root)
    claim = store.claim(ID)
    assert claim is not None and claim.is_held()
    assert Store(root).claim(ID) is None
    assert str(os.getpid()) in str(store.owner(ID))
    claim.release()
    assert store.owner(ID) is None
    second = store.claim(ID)
    assert second is not None and second.generation == 2
    assert not claim.is_held()


def _race(root: str, barrier: object, wins: object) -> None:
    store = Store(root)
    for index in range(50):
        barrier.wait()  # type: ignore[attr-defined]
        if store.claim(f"{index:016x}") is not None:
            wins.put(index)  # type: ignore[attr-defined]
    barrier.wait()  # type: ignore[attr-defined]


def test_of_four_processes_that_claim_at_once_one_wins(root: str) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, wins = context.Barrier(4), context.Queue()
    racers = [context.Process(target=_race, args=(root, barrier, wins)) for _ in range(4)]
    for racer in racers:
        racer.start()
    won = sorted(wins.get(timeout=60) for _ in range(50))
    for racer in racers:
        racer.join()
    assert won == list(range(50))
    assert wins.empty()


def test_a_dead_process_holds_nothing(root: str) -> None:
    code = (
        "import os; from polysweep.sweeps.store.store import Store; "
        f"Store({root!r}).claim({ID!r}); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    store = Store(root)
    assert store.claims.generation(ID) == 1
    assert store.owner(ID) is None
    assert store.claim(ID) is not None


def test_a_claim_of_another_machine_is_stale_when_its_heartbeat_stands_still_on_our_clock(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(root)
    lease = store.claims.lease()
    claim = store.claim(ID, lease)
    assert claim is not None
    content = json.loads(lease.content())
    content["process"] |= {"boot": "another", "host": "node7"}
    store.files.write(lease.path, json.dumps(content).encode())
    now = time.monotonic()
    clock = [now]
    monkeypatch.setattr(claims_module.time, "monotonic", lambda: clock[0])
    assert str(store.owner(ID)).startswith("node7")
    clock[0] = now + 59
    assert store.owner(ID) is not None
    content["beats"] += 1
    store.files.write(lease.path, json.dumps(content).encode())
    clock[0] = now + 100
    assert store.owner(ID) is not None, "it has beaten since"
    clock[0] = now + 161
    assert store.owner(ID) is None
    assert not claim.is_held() or store.claim(ID, supersedes=1) is not None


def test_a_worker_takes_over_what_its_own_launch_has_lost(root: str) -> None:
    """Its claim is another machine's, so that it does not look dead."""
    store = Store(root)
    lease = store.claims.lease("one")
    claim = store.claim(ID, lease)
    assert claim is not None
    content = json.loads(lease.content())
    content["process"] |= {"boot": "another", "host": "node7"}
    store.files.write(lease.path, json.dumps(content).encode())
    assert store.claim(ID) is None and store.claim(ID, store.claims.lease("two")) is None
    taken = store.claim(ID, store.claims.lease("one"))
    assert taken is not None and taken.generation == 2 and not claim.is_held()


def test_a_claim_made_since_the_plan_is_not_taken_over(trained: str) -> None:
    """Two launches read `new`; the faster one claims; the other's job says that it saw no claim."""
    slow = Store(trained)
    seen = slow.state("0123456789abcdef")
    assert Store(trained).claim("0123456789abcdef") is not None
    assert seen.generation == 0
    assert slow.claim("0123456789abcdef", supersedes=seen.generation) is None
