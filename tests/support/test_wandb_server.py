"""The loopback W&B server against the real client and the real `wandb.Api`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import wandb
from wandb.errors import CommError
from wandb.sdk.lib.service.service_connection import WandbApiFailedError

from tests.support.loopback_wandb import Wandb
from tests.support.waiting import wait_for

KINDS = (1.5, float("nan"), float("inf"), -float("inf"))


pytestmark = pytest.mark.usefixtures("fresh_client")


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Any]:
    """Open a run."""

    def open_run(run_id: str, project: str = "p", **options: Any) -> Any:
        settings = wandb.Settings(silent=True, console="off", finish_timeout=120, finish_timeout_raises=True)
        for key, value in options.pop("settings", {}).items():
            setattr(settings, key, value)
        folder = tempfile.mkdtemp(dir=tmp_path)
        given: dict[str, Any] = {"reinit": "create_new", "resume": "allow", **options}
        return wandb.init(project=project, id=run_id, dir=folder, settings=settings, **given)

    return open_run


@pytest.fixture
def logged(begin: Callable[..., Any], wandb_server: Wandb) -> Callable[..., None]:
    """Log a run with so many epochs and finish it."""

    def log_run(run_id: str, epochs: int, exit_code: int = 0, **options: Any) -> None:
        live = begin(run_id, **options)
        for epoch in range(1, epochs + 1):
            live.log({"epoch": epoch, "loss": KINDS[epoch % 4]}, step=epoch)
        live.summary["outcome"] = "finished" if exit_code == 0 else "error"
        live.finish(exit_code=exit_code)

    return log_run


def epochs_of(server: Wandb, name: str) -> list[int]:
    return [json.loads(line)["epoch"] for line in server.dump()["runs"][name]["history"]]


def test_the_api_reads_what_the_client_logged(wandb_server: Wandb, logged: Callable[..., None]) -> None:
    logged("a", 5, name="usam", group="g", job_type="polyak", tags=["x", "y"], config={"rho": 0.1})
    api = wandb.Api(timeout=30)
    assert api.default_entity == "lab"
    run = api.run("lab/p/a")
    assert (run.id, run.name, run.state, run.group, run.job_type) == ("a", "usam", "finished", "g", "polyak")
    assert sorted(run.tags) == ["x", "y"] and dict(run.config) == {"rho": 0.1}
    assert run.summary["outcome"] == "finished" and run.summary["epoch"] == 5
    assert run.lastHistoryStep == 5 and run.historyLineCount == 5
    assert run.created_at <= run.heartbeat_at
    rows = list(run.scan_history())
    assert [(row["_step"], row["epoch"]) for row in rows] == [(e, e) for e in range(1, 6)]
    assert [row["loss"] for row in rows] == ["NaN", "Infinity", "-Infinity", 1.5, "NaN"]
    assert len(list(run.scan_history(page_size=2))) == 5
    assert [row["epoch"] for row in run.scan_history(keys=["epoch"], page_size=2)] == [1, 2, 3, 4, 5]
    assert list(run.scan_history(keys=["epoch", "missing"])) == []
    assert len(run.history()) == 5 and len(run.history(samples=2, pandas=False)) == 2
    sampled: Any = run.history(keys=["epoch"], pandas=False)
    assert [row["epoch"] for row in sampled] == [1, 2, 3, 4, 5]
    assert wandb_server.dump()["unknown"] == []


def test_runs_are_filtered_ordered_and_paged(wandb_server: Wandb, logged: Callable[..., None]) -> None:
    for number, name in enumerate("abcde"):
        logged(name, number + 1, exit_code=number % 2, tags=["t", name], group="g" if number < 2 else "h")
    logged("a", 1, project="other")
    api = wandb.Api(timeout=30)

    def ids(filters: Mapping[str, Any] | None = None, **options: Any) -> str:
        return "".join(run.id for run in api.runs("lab/p", filters=dict(filters or {}), **options))

    assert ids() == ids(per_page=2) == "abcde"
    assert ids(order="-created_at") == "edcba" and ids(order="-summary_metrics.epoch", per_page=2) == "edcba"
    some = api.runs("lab/p", filters={"name": {"$in": ["b", "d", "e", "nobody"]}}, per_page=2)
    assert len(some) == 3 and [run.historyLineCount for run in some] == [2, 4, 5]
    assert ids({"tags": "c"}) == "c" and ids({"tags": {"$in": ["a", "e"]}}) == "ae"
    assert ids({"state": "failed"}) == "bd" and ids({"group": "g"}) == "ab"
    assert ids({"$or": [{"tags": "c"}, {"$and": [{"state": "failed"}, {"group": "g"}]}]}) == "bc"
    with pytest.raises(WandbApiFailedError, match="cannot filter or sort by 'colour'"):
        ids({"colour": "red"})
    assert wandb_server.dump()["projects"] == {"lab/p": list("abcde"), "lab/other": ["a"]}


def test_what_is_not_there_is_reported_as_by_the_real_server(wandb_server: Wandb, logged: Callable[..., None]) -> None:
    logged("a", 1)
    api = wandb.Api(timeout=30)
    with pytest.raises(ValueError, match="Could not find project nowhere"):
        len(api.runs("lab/nowhere"))
    for path in ("lab/p/nobody", "lab/nowhere/a"):
        with pytest.raises(CommError, match="Could not find run"):
            api.run(path)


def test_tags_are_added_and_a_run_is_deleted(wandb_server: Wandb, logged: Callable[..., None]) -> None:
    logged("a", 3, tags=["x"], config={"rho": 0.1}, group="g")
    logged("b", 1, exit_code=1)
    before = wandb_server.dump()["runs"]["a"]
    run: Any = wandb.Api(timeout=30).run("lab/p/a")
    run.tags = [*run.tags, "y"]
    run.update()
    after = wandb_server.dump()["runs"]["a"]
    assert after["attributes"] == {**before["attributes"], "tags": ["x", "y"]}
    assert [after[key] for key in ("history", "state")] == [before[key] for key in ("history", "state")]
    assert dict(wandb.Api(timeout=30).run("lab/p/a").config) == {"rho": 0.1}
    run.delete()
    assert [run.id for run in wandb.Api(timeout=30).runs("lab/p")] == ["b"]


def test_a_state_follows_the_file_stream(wandb_server: Wandb, begin: Callable[..., Any]) -> None:
    def state() -> str:
        found: str = wandb.Api(timeout=30).run("lab/p/a").state
        return found

    for exit_code, ended in ((1, "failed"), (0, "finished")):
        live = begin("a")
        assert state() == "running"
        live.finish(exit_code=exit_code)
        assert state() == ended


def test_a_killed_run_is_resumed_where_its_history_ends(
    wandb_server: Wandb, begin: Callable[..., Any], tmp_path: Path
) -> None:
    """It is killed while it waits for the answer to what has arrived; its last row has a NaN."""
    code = (
        "import sys, wandb\n"
        "live = wandb.init(project='p', id='a', settings=wandb.Settings(silent=True, console='off'))\n"
        "sys.stdin.readline()\n"
        "[live.log({'epoch': e, 'loss': float('nan')}, step=e) for e in range(1, 4)]\n"
        "live.finish()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE, start_new_session=True)
    assert child.stdin is not None
    try:
        wait_for(lambda: wandb_server.dump()["requests"].get("file_stream"), 30)
        wandb_server.hang(only="file_stream", applied=True)
        child.stdin.write(b"go on\n")
        child.stdin.close()
        wait_for(lambda: epochs_of(wandb_server, "a") == [1, 2, 3], 30)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    wandb_server.recover()
    live = begin("a")
    assert live.starting_step == 4
    for epoch in (4, 5):
        live.log({"epoch": epoch}, step=epoch)
    live.finish()
    assert epochs_of(wandb_server, "a") == [1, 2, 3, 4, 5]


@pytest.mark.long
@pytest.mark.parametrize("fault", ["500", "429", "hang", "lost"])
def test_a_run_survives_a_fault_of_the_server(fault: str, wandb_server: Wandb, begin: Callable[..., Any]) -> None:
    """Each epoch once, although requests are refused, never answered, or carried out without an answer."""
    settings = {f"x_{what}_retry_wait_min_seconds": 0.1 for what in ("file_stream", "file_transfer", "graphql")}
    live = begin("a", settings=settings)
    for epoch in (1, 2, 3):
        live.log({"epoch": epoch}, step=epoch)
    if fault == "500":
        wandb_server.fail(500, every=2)
    elif fault == "429":
        wandb_server.fail(429, retry_after=0.1, every=2)
    elif fault == "hang":
        wandb_server.hang()
    else:
        wandb_server.fail(500, every=2, applied=True)
    live.log({"epoch": 4}, step=4)
    if fault == "hang":
        code = f"import time, urllib.request as u; time.sleep(1); u.urlopen('{wandb_server.url}/control', b'{{}}')"
        with subprocess.Popen([sys.executable, "-c", code]):
            live.finish()
    else:
        live.finish()
    assert epochs_of(wandb_server, "a") == [1, 2, 3, 4]
    assert wandb_server.dump()["runs"]["a"]["state"] == "finished"


def test_logging_does_not_wait_for_a_server_that_hangs(wandb_server: Wandb, begin: Callable[..., Any]) -> None:
    live = begin("a", settings={"finish_timeout": 1.0})
    wandb_server.hang()
    began = time.monotonic()
    for epoch in range(1, 200):
        live.log({"epoch": epoch}, step=epoch)
    assert time.monotonic() - began < 2
    with pytest.raises(TimeoutError, match="Timed out finishing run"):
        live.finish()
    wandb_server.recover()
    again = begin("a")
    for epoch in range(max(1, again.starting_step), 201):
        again.log({"epoch": epoch}, step=epoch)
    again.finish()
    assert epochs_of(wandb_server, "a") == list(range(1, 201))


def test_a_refused_file_stream_is_silent(wandb_server: Wandb, begin: Callable[..., Any]) -> None:
    """After a 4xx the client drops the rows and `finish` returns as if nothing was: only the server tells."""
    wandb_server.fail(403, only="file_stream")
    live = begin("a")
    live.log({"epoch": 1}, step=1)
    live.finish()
    wandb_server.recover()
    run = wandb.Api(timeout=30).run("lab/p/a")
    assert (run.state, run.historyLineCount, run.lastHistoryStep) == ("running", 0, -1)
