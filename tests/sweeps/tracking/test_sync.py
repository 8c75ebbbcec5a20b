"""`polysweep sync` against a server that refuses, loses, has deleted or does not say: named, in bounded time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import wandb
from typer.testing import CliRunner

from polysweep.cli import app
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import complete, sync, upload
from polysweep.sweeps.tracking.wandb_server import Server
from polysweep.trainer import wandb_client
from polysweep.trainer.errors import UserError
from polysweep.trainer.wandb_client import Fault
from tests.support.loopback_wandb import Wandb
from tests.support.made import by_lr, sweep
from tests.support.wandb_runs import CONFIG, put

pytestmark = pytest.mark.usefixtures("fresh_client")
CONFIGS = [CONFIG.model_copy(update={"seed": seed}) for seed in range(6)]
FLATS = {config.trial_id: config.flat() for config in CONFIGS}
IDS = list(FLATS)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Six finished trials."""
    store = Store(str(tmp_path / "store"))
    for config in CONFIGS:
        put(store, 3, config=config)
    return store


def wandb_of(store: Store) -> list[Any]:
    return [(store.record(trial_id) or {})["wandb"] for trial_id in IDS]


def test_a_run_that_was_deleted_is_named_skipped_from_then_on_and_tried_again_when_asked(
    store: Store, wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wandb_client, "UPLOAD_RETRIES", 1)
    said: list[str] = []
    assert sync("s", FLATS, store, said.append) == 0
    wandb.Api(timeout=30).run(f"lab/polysweep/{IDS[0]}").delete()
    assert sync("s", FLATS, store, said.append) == 1
    assert "5 W&B runs were complete, 0 uploaded, 0 tagged, 0 still incomplete, 1 deleted on the server" in said[1]
    assert IDS[0] in said[1] and "polysweep sync --again" in said[1] and "WANDB_PROJECT" in said[1]
    assert wandb_of(store) == ["deleted lab/polysweep", *["online"] * 5]
    before = wandb_server.dump()["requests"]["UpsertBucket"]
    assert sync("s", FLATS, store, said.append) == 1 and said[2] == said[1]
    assert wandb_server.dump()["requests"]["UpsertBucket"] == before, "nobody asks for it again"
    complete(FLATS, store, "online")
    assert wandb_server.dump()["requests"]["UpsertBucket"] == before, "nor does a launch"
    assert sync("s", FLATS, store, said.append, again=True) == 1
    assert wandb_server.dump()["requests"]["UpsertBucket"] > before


def test_the_command_tries_deleted_runs_again_when_it_is_told_to(
    tmp_path: Path, wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, bool]] = []
    monkeypatch.setattr(
        "polysweep.sweeps.tracking.sync.sync",
        lambda name, trials, _store, _say, *, again: asked.append((name, len(trials), again)) or 0,
    )
    sweep(tmp_path, by_lr)
    for extra in ([], ["--again"]):
        assert CliRunner().invoke(app, ["sync", "made", "--store", str(tmp_path), *extra]).exit_code == 0
    assert asked == [("made", 24, False), ("made", 24, True)]


def test_a_run_that_was_deleted_in_one_project_goes_into_another(
    store: Store, wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 3, wandb="deleted lab/polysweep")
    monkeypatch.setenv("WANDB_PROJECT", "other")
    counts = upload(store, FLATS)
    assert counts.is_whole and counts.uploaded == 6
    assert len(wandb_server.dump()["projects"]["lab/other"]) == 6


@pytest.mark.parametrize("struck", ["RunResumeStatus", "UpsertBucket", "file_stream"])
def test_a_server_that_refuses_uploads_for_ever_ends_them_and_all_that_is_missing_is_named(
    struck: str, store: Store, wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first runs are tried, side by side; the others are not: they would wait as long, each of them."""
    monkeypatch.setattr(wandb_client, "INIT_SECONDS", 1.0)
    monkeypatch.setattr(wandb_client, "FINISH_SECONDS", 1.0)
    wandb_server.fail(429, only=struck)
    said: list[str] = []
    assert sync("s", FLATS, store, said.append) == 1
    assert (
        "0 uploaded, 0 tagged, 6 still incomplete" in said[0] and f"{IDS[0]}, {IDS[1]}, {IDS[2]} and 3 more" in said[0]
    )
    opened = {one["name"] for one in wandb_server.dump()["runs"].values()}
    assert not set(IDS[4:]) & opened, "what had not begun was not tried"
    assert wandb_client.service_process() is None, "no process stays"
    wandb_server.recover()
    assert sync("s", FLATS, store, said.append) == 0


def test_a_server_that_refuses_everything_is_one_error(store: Store, wandb_server: Wandb) -> None:
    code = (
        "import sys, polysweep.sweeps.tracking.wandb_server as s; s.TIMEOUT_SECONDS = 1\n"
        "from polysweep.sweeps.store.store import Store\n"
        "from polysweep.sweeps.tracking.sync import complete; import json\n"
        "complete(json.loads(sys.argv[2]), Store(sys.argv[1]), 'online')"
    )
    wandb_server.fail(429)
    arguments = [sys.executable, "-c", code, store.root, json.dumps(FLATS)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=100, check=True)
    assert done.stderr.startswith("warning: W&B runs are missing (the W&B server cannot be used: ")
    assert done.stderr.count("\n") == 1 and "polysweep sync uploads them" in done.stderr


def test_an_answer_that_cannot_be_read_is_not_taken_for_nothing(store: Store, wandb_server: Wandb) -> None:
    """A ValueError in a look-up says that there is no such project only where it says so."""
    wandb_server.load("polysweep", [{"name": IDS[0], "history": ['{"_step": "one"}'], "complete": True}])
    with pytest.raises(UserError, match="the W&B server does not list the runs of lab/polysweep"):
        Server().runs(IDS)
    with pytest.raises(UserError, match="does not list"):
        upload(store, FLATS)
    assert len(wandb_server.dump()["runs"]) == 1, "nothing was uploaded"


def test_tags_that_the_server_refuses_are_counted_as_missing(
    store: Store, wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert upload(store, FLATS).is_whole
    monkeypatch.setattr(store, "sweeps_of", lambda trial_ids: {trial_id: ["late"] for trial_id in trial_ids})
    monkeypatch.setattr("polysweep.sweeps.tracking.wandb_server.TIMEOUT_SECONDS", 2)
    wandb_server.fail(403, only="UpsertBucket")
    counts = upload(store, FLATS)
    assert counts.tagged == 0 and counts.failed == tuple(IDS) and "cannot be tagged" in counts.why
    wandb_server.recover()
    assert upload(store, FLATS).tagged == 6


def test_an_interrupted_trial_of_an_earlier_attempt_is_put_right(store: Store, wandb_server: Wandb) -> None:
    """The server says failed; the trial was tried again and was interrupted before it was logged."""
    put(store, 1, "failed")
    assert upload(store, FLATS).is_whole
    assert wandb_server.dump()["runs"][IDS[0]]["state"] == "failed"
    put(store, 1, "running", wandb="begun")
    counts = upload(store, FLATS)
    assert counts.is_whole and counts.uploaded == 1
    assert wandb_server.dump()["runs"][IDS[0]]["state"] == "preempted"


def test_a_config_that_is_missing_is_named(store: Store, wandb_server: Wandb) -> None:
    Path(f"{store.root}/trials/{IDS[0]}/config.json").unlink()
    counts = upload(store, FLATS)
    assert counts.uploaded == 5 and counts.failed == (IDS[0],)
    assert f"trials/{IDS[0]}/config.json: missing" in str(counts)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Timed out while retrying: HTTP 409: run was previously created and deleted", "deleted"),
        ("Failed to get resume status for run r3: returned error 403: {}", "refused"),
        ("giving up after 5 attempt(s)\nwhile retrying: HTTP 429: {}", "unreachable"),
        ("giving up after 5 attempt(s)\nwhile retrying: HTTP 500: {}", "unreachable"),
        ("giving up after 5 attempt(s): dial tcp 127.0.0.1:9: connect: connection refused", "unreachable"),
        ("some value cannot be logged", "refused"),
    ],
)
def test_what_an_error_of_the_client_means(text: str, kind: str) -> None:
    assert Fault.of(wandb.errors.Error(text)).kind == kind
    assert Fault.of(TimeoutError()).kind == "unreachable" and Fault.of(KeyError("epoch")).kind == "refused"


@pytest.mark.long  # a minute of waiting
def test_steady_refusal_in_the_middle_of_a_launch_s_last_upload_ends_in_time(store: Store, wandb_server: Wandb) -> None:
    """With the client's own patience: 30 s to open a run, 60 s to end it."""
    wandb_server.fail(429, only="file_stream")
    began = time.monotonic()
    said: list[str] = []
    assert sync("s", FLATS, store, said.append) == 1
    assert time.monotonic() - began < 180 and wandb_client.service_process() is None
