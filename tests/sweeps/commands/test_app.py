"""The command line: every mistake is one line and exit code 2, and planning is quick to start."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polysweep.cli import app
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.commands import assert_user_error
from tests.support.loopback_wandb import Wandb
from tests.support.made import by_lr, sweep
from tests.support.specs import GOOD, WRONG

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("command", ["plan", "launch"])
@pytest.mark.parametrize(
    "case",
    ["not YAML", "no mapping", "unknown key", "negative radius", "NaN radius", "radius is a word", "lr to polyak",
     "unknown task", "unknown model", "unknown scheduler", "shared and in a variant", "empty list",
     "unknown tuned", "no seeds", "no epochs", "bad name", "bayes without metric",
     "an empty range", "probabilities that do not sum to one"],
)  # fmt: skip
def test_a_wrong_spec_is_one_line_and_exit_code_2(run_here: Run, tmp_path: Path, command: str, case: str) -> None:
    text, line, words = WRONG[case]
    (tmp_path / "file.yaml").write_text(text)
    answer = run_here(command, "file.yaml", "--store", "store")
    assert_user_error(answer, f"error: file.yaml:{line}: ", *words)
    assert len(answer.stderr.splitlines()) == 1
    assert not (tmp_path / "store/sweeps").exists(), "nothing was launched"


def test_a_missing_spec_is_named(run_here: Run) -> None:
    for command in ("plan", "launch"):
        assert_user_error(run_here(command, "nowhere.yaml"), "nowhere.yaml: no such file")


def test_an_unknown_sweep_is_named_with_those_there_are(
    run_here: Run, tmp_path: Path, spec_file: Callable[..., Path]
) -> None:
    from polysweep.sweeps.spec.spec import SweepSpec
    from polysweep.sweeps.store.store import Store

    spec = SweepSpec.load(spec_file())
    Store(str(tmp_path / "store")).write_sweep(spec)
    for command in (["status"], ["table"], ["plot", "--out", "x"], ["report", "--out", "x.html"]):
        answer = run_here(command[0], "smal", *command[1:], "--store", "store")
        assert_user_error(answer, "no sweep 'smal'", "it has: small")
    assert_user_error(run_here("table", "any", "--store", "empty"), "no sweep 'any'", "it has: none")


def test_a_store_that_cannot_be_written_is_named(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "file.yaml").write_text(GOOD)
    for store in ("taken", "/proc/store", "s3://bucket/store"):
        assert_user_error(run_here("launch", "file.yaml", "--store", store), store)
    settings = ["task=digits", "model=mlp", "optimizer=sgd", "scheduler=polyak"]
    assert_user_error(run_here("train", *settings, "--store", "taken"), "taken")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "rho"], ["'rho'", "KEY=VALUE"]),
        (["train", "task=digits"], ["model: missing"]),
        (["train", "task=digits", "model=mlp", "optimizer=sam", "scheduler=polyak"], ["rho: missing"]),
        (["train", "taks=digits"], ["taks", "did you mean 'task'"]),
        (["train", "task=digits", "model=mlp", "optimizer=sam", "scheduler=polyak", "rho=-1"], ["rho", "-1"]),
        (["launch", "file.yaml", "--wandb", "onlin"], ["--wandb", "'onlin'", "online, offline, disabled"]),
        (
            ["train", "task=digits", "model=mlp", "optimizer=sgd", "scheduler=polyak", "--device", "tpu"],
            ["tpu"],
        ),
        (
            ["train", "task=digits", "model=mlp", "optimizer=sgd", "scheduler=polyak", "--threads", "9999"],
            ["9999", "cores"],
        ),
        (["train", "task=digits", "bogus="], ["'bogus='", "missing"]),
        (["train", "task=3", "task.x=1"], ["task.x"]),
        (["status", "../x"], ["no sweep '../x'"]),
        (["plan", "file.yaml", "--store", ""], ["store ''"]),
        (["table"], ["NAME"]),
        (["lunch"], ["lunch"]),
    ],
)
def test_a_wrong_argument_is_named(run_here: Run, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "file.yaml").write_text(GOOD)
    assert_user_error(run_here(*arguments), *words)


def test_plan_and_status_print_one_json_object(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(GOOD)
    planned = json.loads(run_here("plan", "file.yaml", "--store", "store", "--json").stdout)
    assert set(planned) == {"sweep", "counts", "cells", "trials", "stacks", "extension", "estimate", "decisions"}
    assert len(planned["trials"]) == planned["counts"]["new"] == 18
    assert set(planned["trials"][0]) == {"trial_id", "cell", "config", "state"}
    assert sum(map(len, planned["stacks"])) == 18
    assert not (tmp_path / "store").exists(), "a plan writes nothing"
    for words in (
        "18 trials",
        "4 cells",
        "3 seeds",
        "18 new, 0 interrupted, 0 running, 0 done",
        "stacks would start",
    ):
        assert words in run_here("plan", "file.yaml", "--store", "store").stdout

    from polysweep.sweeps.spec.spec import SweepSpec
    from polysweep.sweeps.store.store import Store

    store = Store(str(tmp_path / "store"))
    store.write_sweep(SweepSpec.load(tmp_path / "file.yaml"))
    store.write_record(planned["trials"][0]["trial_id"], {"outcome": "finished", "width": 8, "epoch": 2})
    store.write_history(
        planned["trials"][0]["trial_id"],
        [{**dict.fromkeys(HISTORY_COLUMNS), "epoch": e, "test/top1": v} for e, v in ((1, 0.5), (2, 0.4))],
    )
    shown = json.loads(run_here("status", "file", "--store", "store", "--json").stdout)
    assert set(shown) >= {"sweep", "counts", "cells", "trials"}
    assert shown["cells"][0] == {
        "cell": {"rho": 0.1, "scheduler": "constant"}, "counts": {"finished": 1, "new": 5}, "best": 0.5,
    }  # fmt: skip
    assert shown["trials"][0] == {
        "trial_id": planned["trials"][0]["trial_id"],
        "outcome": "finished",
        "epoch": 2,
    }
    assert "0.5000" in run_here("status", "file", "--store", "store").stdout


@pytest.mark.parametrize(("lr_min", "what"), [("0.01", "the constant step size under another name"), ("0.1", "rises")])
def test_a_cosine_that_never_falls_is_refused_with_the_reason(
    run_here: Run, tmp_path: Path, lr_min: str, what: str
) -> None:
    cosine = GOOD.replace("{value: constant}, lr:", f"{{value: cosine}}, lr_min: {{value: {lr_min}}}, lr:")
    (tmp_path / "file.yaml").write_text(cosine)
    answer = run_here("plan", "file.yaml")
    assert answer.returncode == 2 and len(answer.stderr.splitlines()) == 1
    assert f"file.yaml:11: lr_min: {lr_min} is not below lr = 0.01" in answer.stderr and what in answer.stderr
    settings = ("task=digits", "model=mlp", "optimizer=sgd", "scheduler=cosine", "lr=0.01", f"lr_min={lr_min}")
    assert run_here("train", *settings).returncode == 2


def test_a_sweep_launched_by_an_older_version_is_read_and_not_launched_again(run_here: Run, tmp_path: Path) -> None:
    """It held cosine rows that are refused now; what was recorded of them stays readable."""
    cosine = GOOD.replace("{value: constant}, lr:", "{value: cosine}, lr_min: {value: 0.1}, lr:")
    (tmp_path / "file.yaml").write_text(cosine)
    from polysweep.sweeps.spec.spec import SweepSpec
    from polysweep.sweeps.store.store import Store

    spec = SweepSpec.load(tmp_path / "file.yaml", recorded=True)
    store = Store(str(tmp_path / "store"))
    store.write_sweep(spec)
    old_names = {**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": 1, "step": 3, "partial": False, "sharpness": 0.5}
    del old_names["ascent_gain"]
    for trial in spec.trials:
        record = {"outcome": "finished", "width": 1, "epoch": 2, "seconds": 1.0}
        store.write_record(trial.trial_id, record)
        schema = [old_names, {**old_names, "epoch": 2, "gamma/zero_share": 1.0}]
        store.write_history(trial.trial_id, schema)
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert "6 finished trials are stalled" in run_here("status", "file", "--store", "store").stdout, "those of polyak"
    table = run_here("table", "file", "--store", "store")
    assert table.returncode == 0 and "**50.00 +- 0.00** (3/3, 3 stalled)" in table.stdout, table.stderr
    assert run_here("plot", "file", "--store", "store", "--out", "plots").returncode == 0
    assert (tmp_path / "plots" / "ascent-gain.csv").exists()
    assert run_here("launch", "file.yaml", "--store", "store").returncode == 2
    assert {path: path.read_bytes() for path in before} == before, "nothing is rewritten"


@pytest.mark.usefixtures("fresh_client")
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
