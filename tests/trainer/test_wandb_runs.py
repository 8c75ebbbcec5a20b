"""What a run is called on W&B, and online runs of the real client against a loopback server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import wandb

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from polysweep.trainer.wandb_runs import Online, describe, resolve_mode
from tests.support.loopback_wandb import Wandb
from tests.support.project import ROOT, TINY
from tests.support.wandb_runs import CONFIG, HISTORY, described, epochs_of

OTHER = CONFIG.model_copy(update={"seed": 1})
GROUPS = (
    "task=digits model=mlp model_options={'hidden': 32} optimizer=sam scheduler=cosine rho=0.1 lr=0.1 lr_min=0.001 "
    + "batch_siz-0a86e910",
    "task=digits model=mlp optimizer=usam scheduler=polyak rho=0.1 weight_decay=0.0005 batch_size=256 "
    + "epochs=3-c8c6e7ac",
)
"""As the first version wrote them."""


pytestmark = pytest.mark.usefixtures("fresh_client")


def test_a_run_is_described_as_the_design_says() -> None:
    run = described(CONFIG, ["b", "a"])
    assert run.trial_id == CONFIG.trial_id
    assert run.name == "usam polyak rho=0.1 wd=0.0005 s=0"
    assert run.job_type == "polyak"
    assert run.tags == ("a", "b")
    assert run.config["rho"] == 0.1 and run.config["model_options.hidden"] == 64 and run.config["epochs"] == 3


def test_a_run_is_named_from_records_as_it_always_was() -> None:
    """Runs of one config stay in one group, whatever version has logged them."""
    fields = {"optimizer": "sam", "scheduler": "cosine", "lr": 0.1, "lr_min": 0.001, "seed": 3}
    config = TrialConfig.parse({**TINY, **fields, "model_options": {"hidden": 32}})
    canonical, flat = (json.loads(json.dumps(one)) for one in (config.canonical(), config.flat()))
    run = describe(config.trial_id, canonical, flat, [])
    assert (run.name, run.job_type) == ("sam cosine lr=0.1 lr_min=0.001 rho=0.1 wd=0 s=3", "cosine")
    assert run.group == GROUPS[0] and run.config == config.flat()
    first = describe(CONFIG.trial_id, *(json.loads(json.dumps(one)) for one in (CONFIG.canonical(), CONFIG.flat())))
    assert first.group == GROUPS[1]


def test_a_run_says_where_its_numbers_come_from() -> None:
    provenance = {"commit": "c0ffee", "versions": {"torch": "2.9"}, "device": "cpu", "threads": 2, "numerics": 1}
    more = {"image": {"lock": "ab"}, "device_model": None, "sources": {"task": "ab12", "model": "cd34"}}
    run = described(record={"width": 4, "provenance": {**provenance, **more}})
    assert run.config["polysweep"] == {
        "commit": "c0ffee", "version": {"torch": "2.9"}, "device": "cpu", "threads": 2, "numerics": 1, "width": 4,
        "image": '{"lock": "ab"}', "sources": "model cd34, task ab12",
    }  # fmt: skip
    assert run.group == described().group and run.name == described().name


def test_the_group_is_the_config_without_its_seed_and_fits_wandb() -> None:
    def group(**change: object) -> str:
        return described(TrialConfig.parse({**TINY, **change})).group

    assert group() == group(seed=3)
    assert group() != group(rho=0.2)
    long = group(model_options={"hidden": 123, "layers": 7}, lower_bound=-1.5, momentum=0.123456, label_smoothing=0.1)
    assert len(long) == 128 and len(group()) <= 128


def test_the_mode_is_what_was_asked_for_or_follows_the_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert resolve_mode(None) == "offline"
    assert resolve_mode("disabled") == "disabled"
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert resolve_mode(None) == "online"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert resolve_mode(None) == "offline"
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.delenv("WANDB_API_KEY")
    login = tmp_path / "netrc"
    login.write_text("machine api.wandb.ai login user password key\n")
    monkeypatch.setenv("NETRC", str(login))
    monkeypatch.delenv("WANDB_BASE_URL")
    assert resolve_mode(None) == "online"
    with pytest.raises(UserError, match="--wandb: unknown mode 'onlin'; expected one of online, offline, disabled"):
        resolve_mode("onlin")
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    assert resolve_mode("disabled") == "disabled"
    with pytest.raises(UserError, match=r"^WANDB_SWEEP_ID: set, as by a W&B agent"):
        resolve_mode(None)


def test_an_online_run_is_complete_with_each_epoch_once(wandb_server: Wandb) -> None:
    online = Online()
    run = described(CONFIG, ["small"])
    online.start(run, [])
    for row in HISTORY:
        online.log(run.trial_id, row)
    online.finish(run.trial_id, "finished")
    online.drain(60)
    found = wandb_server.dump()["runs"][CONFIG.trial_id]
    assert epochs_of(found) == [1, 2, 3]
    assert (found["complete"], found["exit_code"]) == (True, 0)
    assert found["attributes"]["tags"] == ["small"]
    assert found["attributes"]["groupName"] == run.group
    assert {k: v["value"] for k, v in found["config"].items() if k != "_wandb"} == run.config
    assert json.loads(found["summary"])["outcome"] == "finished"


def test_a_run_that_was_killed_is_completed_with_each_epoch_once(wandb_server: Wandb, tmp_path: Path) -> None:
    """The client is killed after two epochs that may or may not have arrived; the rest comes from the Store."""
    code = (
        "import time; from tests.support.wandb_runs import CONFIG, HISTORY, described\n"
        "from polysweep.trainer.wandb_runs import Online\n"
        "o = Online(); o.start(described(CONFIG), []); [o.log(CONFIG.trial_id, r) for r in HISTORY[:2]]\n"
        "o.drain(60); print('logged', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None and child.stdout.readline() == b"logged\n"
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    online = Online()
    online.start(described(CONFIG), HISTORY[:2])
    online.log(CONFIG.trial_id, HISTORY[2])
    online.finish(CONFIG.trial_id, "finished")
    online.drain(60)
    found = wandb_server.dump()["runs"][CONFIG.trial_id]
    assert epochs_of(found) == [1, 2, 3]
    assert found["exit_code"] == 0


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "polysweep.tracking"]


def test_an_unreachable_server_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setattr("polysweep.trainer.wandb_client.INIT_SECONDS", 1.0)
    online = Online()
    for config in (CONFIG, OTHER):
        online.start(described(config), [])
        online.log(config.trial_id, HISTORY[0])
        online.finish(config.trial_id, "finished")
    online.drain(90)
    assert online.is_broken
    (said,) = warnings_of(caplog)
    assert said.startswith("W&B cannot be reached (") and "tried again after 60 s" in said


@pytest.mark.parametrize("fault", [{"only": "RunResumeStatus"}, {"only": "file_stream"}], ids=["opening", "rows"])
def test_a_server_that_comes_back_gets_every_row_of_the_runs_that_go_on(
    fault: dict[str, str], wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One run cannot be opened, or not ended; the other goes on once the server answers again."""
    monkeypatch.setattr("polysweep.trainer.wandb_client.INIT_SECONDS", 1.0)
    monkeypatch.setattr("polysweep.trainer.wandb_client.FINISH_SECONDS", 1.0)
    monkeypatch.setattr("polysweep.trainer.wandb_runs.RETRY_SECONDS", 0.0)
    online = Online()
    if fault["only"] == "file_stream":
        online.start(described(CONFIG), HISTORY[:1])
        online.start(described(OTHER), HISTORY[:1])
        online.drain(60)
    wandb_server.fail(429, **fault)
    if fault["only"] == "RunResumeStatus":
        online.start(described(CONFIG), HISTORY[:1])
        online.start(described(OTHER), HISTORY[:1])
    online.finish(OTHER.trial_id, "finished")
    online.drain(90)
    assert online.is_broken
    wandb_server.recover()
    for row in HISTORY[1:]:
        online.log(CONFIG.trial_id, row)
    online.finish(CONFIG.trial_id, "finished")
    online.drain(90)
    found = wandb_server.dump()["runs"][CONFIG.trial_id]
    assert epochs_of(found) == [1, 2, 3] and found["state"] == "finished"
    assert not online.is_broken and all("cannot be reached" in said for said in warnings_of(caplog))


def test_a_fault_of_one_run_does_not_silence_the_others(
    wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One was deleted on the server, which refuses its id for ever; one has a row that is no row."""
    monkeypatch.setattr("polysweep.trainer.wandb_client.INIT_SECONDS", 2.0)
    third = CONFIG.model_copy(update={"seed": 2})
    online = Online()
    online.start(described(CONFIG), [])
    online.finish(CONFIG.trial_id, "finished")
    online.drain(60)
    wandb.Api(timeout=30).run(f"lab/polysweep/{CONFIG.trial_id}").delete()
    for config in (CONFIG, OTHER, third):
        online.start(described(config), [])
    online.log(third.trial_id, {"loss": 1.0})
    for row in HISTORY:
        for config in (CONFIG, OTHER, third):
            online.log(config.trial_id, row)
    for config in (CONFIG, OTHER, third):
        online.finish(config.trial_id, "finished")
    online.drain(60)
    runs = wandb_server.dump()["runs"]
    assert epochs_of(runs[OTHER.trial_id]) == [1, 2, 3] and CONFIG.trial_id not in runs
    said = warnings_of(caplog)
    assert not online.is_broken and len(said) == 2
    assert f"the W&B run of {CONFIG.trial_id} is not logged" in said[0] and "previously created and deleted" in said[0]
    assert f"the W&B run of {third.trial_id} is not logged" in said[1]


def test_an_interrupted_run_is_preempted_and_then_runs_again(wandb_server: Wandb) -> None:
    """With another provenance at the second time: another commit, another K."""
    online = Online()
    states = []
    for at, (outcome, rows) in enumerate((("running", HISTORY[:1]), ("finished", HISTORY))):
        record = {"width": at + 1, "provenance": {"commit": f"c{at}"}}
        online.start(described(record=record), rows)
        online.drain(60)
        states.append(wandb_server.dump()["runs"][CONFIG.trial_id]["state"])
        online.finish(CONFIG.trial_id, outcome)
        online.drain(60)
        found = wandb_server.dump()["runs"][CONFIG.trial_id]
        states.append(found["state"])
        assert json.loads(found["summary"])["outcome"] == outcome
        assert found["config"]["polysweep"]["value"] == {"commit": f"c{at}", "width": at + 1}
    assert states == ["running", "preempted", "running", "finished"] and epochs_of(found) == [1, 2, 3]


def test_a_run_that_is_started_again_goes_on(wandb_server: Wandb) -> None:
    """A stack that runs out of memory starts over with half of its rows, in the same process."""
    online = Online()
    online.start(described(), HISTORY[:1])
    online.start(described(), HISTORY[:2])
    online.log(CONFIG.trial_id, HISTORY[2])
    online.finish(CONFIG.trial_id, "finished")
    online.drain(60)
    found = wandb_server.dump()["runs"][CONFIG.trial_id]
    assert epochs_of(found) == [1, 2, 3] and found["state"] == "finished"
