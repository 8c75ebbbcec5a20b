"""The end of W&B's client: in bounded time, and of ours only."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from polysweep.trainer import wandb_client
from polysweep.trainer.errors import UserError
from polysweep.trainer.wandb_runs import Online
from tests.support.loopback_wandb import Wandb
from tests.support.wandb_runs import CONFIG, HISTORY, described

pytestmark = pytest.mark.usefixtures("fresh_client")


# The end of the client.


def test_a_run_of_the_users_own_is_waited_for_at_exit(wandb_server: Wandb, tmp_path: Path) -> None:
    """In a notebook or a script that also logs: the client's own hook uploads it, however long that takes."""
    code = (
        "import wandb; from polysweep.sweeps.tracking.wandb_server import Server\n"
        "wandb.init(project='own', id='own').log({'x': 1})\n"
        "Server(); import polysweep.trainer.wandb_client as c; c.EXIT_SECONDS = c.end_client.__defaults__ = (0.0,)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, timeout=100)
    found = wandb_server.dump()["runs"]["own"]
    assert len(found["history"]) == 1 and found["state"] == "finished"


def test_the_end_of_the_client_does_not_wait_for_a_server_that_refuses(wandb_server: Wandb) -> None:
    """A run is open and the server answers 429 from then on: what is left is dropped, and no process stays."""
    online = Online()
    online.start(described(), HISTORY[:1])
    online.drain(60)
    service = wandb_client.service_process()
    wandb_server.fail(429)
    online.log(CONFIG.trial_id, HISTORY[1])
    online.finish(CONFIG.trial_id, "finished")
    began = time.monotonic()
    online.close(0.1)
    assert time.monotonic() - began < wandb_client.FINISH_SECONDS / 2
    assert service is not None and service.poll() is not None and wandb_client.service_process() is None


def test_a_process_that_only_asked_ends_in_bounded_time_too(wandb_server: Wandb) -> None:
    """It waits for an answer of the Api that never comes, and then leaves: its exit hooks end W&B's service."""
    code = (
        "import polysweep.sweeps.tracking.wandb_server as s; s.TIMEOUT_SECONDS = 1\n"
        "from polysweep.trainer.wandb_client import service_process as p\n"
        "try: s.Server()\nexcept s.UserError as e: print(p().pid, e)"
    )
    wandb_server.fail(429)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    pid, _, said = done.stdout.partition(" ")
    assert said.startswith("the W&B server cannot be used") and done.stderr == ""
    assert not Path(f"/proc/{pid}").exists()


def test_inside_an_agent_of_w_and_b_no_run_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client would give it another id: this is what it does, and what is said instead."""
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    with pytest.raises(UserError, match=r"^WANDB_SWEEP_ID: set, as by a W&B agent; .*--wandb-sweep registers"):
        wandb_client.open_run(described(), "offline", tmp_path)
    code = (
        "import wandb\n"
        "run = wandb.init(project='p', id='0123456789abcdef', mode='offline', settings=wandb.Settings(silent=True))\n"
        "print(run.id)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() != "0123456789abcdef"
