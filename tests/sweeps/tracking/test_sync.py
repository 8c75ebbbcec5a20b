"""`polysweep sync` against a server that refuses, loses, has deleted or does not say: named, in bounded time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import pytest
import wandb

from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import complete, sync
from polysweep.trainer import wandb_client
from polysweep.trainer.wandb_client import Fault
from tests.support.finished_trials import FLATS, IDS
from tests.support.finished_trials import store as store
from tests.support.loopback_wandb import Wandb

pytestmark = pytest.mark.usefixtures("fresh_client")


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
