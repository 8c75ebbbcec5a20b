"""Stores that earlier releases have written: each opens today, says what it said, and continues to the same bits.

How they were made: tests/system/releases/README.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from polysweep.sweeps.store.store import Store
from polysweep.trainer.device import device_model
from tests.support.project import ROOT
from tests.support.results import histories, records

Run = Callable[..., "subprocess.CompletedProcess[str]"]
RELEASES: Final = ROOT / "tests/system/releases"
ARCHIVES: Final = sorted(RELEASES.glob("*.tar.xz"))
SWEEPS: Final = sorted(path.stem for path in (RELEASES / "specs").glob("*.yaml"))
SAID: Final = ("sweep", "metric", "counts", "cells", "trials", "gone", "over", "launches")
"""Of `status`, what must stay; a release may say more."""


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with what a release has kept, and with the specs, where the commands run."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.copytree(RELEASES / "specs", tmp_path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def status(run_here: Run, name: str) -> dict[str, Any]:
    answer = run_here("status", name, "--store", "store", "--json")
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    return {key: found[key] for key in SAID}


def states(run_here: Run, name: str) -> dict[str, int]:
    """How many trials `plan` sees in each state."""
    answer = run_here("plan", f"{name}.yaml", "--store", "store", "--json")
    assert answer.returncode == 0, answer.stderr
    counts: dict[str, int] = json.loads(answer.stdout)["counts"]
    return {state: number for state, number in counts.items() if number and state != "trials"}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_release_is_read_as_it_read_itself(run_here: Run, kept: Path, name: str) -> None:
    """State by state, number by number; nothing is written, and nothing would run again."""
    before = {path: path.read_bytes() for path in kept.glob("store/[st]*/**/*") if path.is_file()}
    expected = json.loads((kept / f"{name}.status.json").read_text())
    assert status(run_here, name) == {key: expected[key] for key in SAID}
    for ending, options in (("md", ()), ("csv", ("--format", "csv"))):
        answer = run_here("table", name, "--store", "store", *options)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout == (kept / f"{name}.table.{ending}").read_text()
    assert run_here("report", name, "--store", "store", "--out", "report.html").returncode == 0
    for trial in expected["trials"]:
        if trial["outcome"] == "failed":  # its traceback is printed, which `run_here` does not expect
            continue
        answer = run_here("logs", name, trial["trial_id"], "--store", "store")
        assert answer.returncode == 0 and trial["outcome"] in answer.stdout + "new", answer
    counted = {state: n for state, n in expected["counts"].items() if n and state != "trials"}
    assert states(run_here, name) == counted
    assert {path: path.read_bytes() for path in before} == before


def test_the_kept_trials_are_of_every_outcome(kept: Path) -> None:
    outcomes = [record["outcome"] for record in records(kept / "store").values()]
    assert set(outcomes) == {"finished", "diverged", "failed", "stopped", "running"}
    assert list(kept.glob("store/wandb/offline-run-*")) and list(kept.glob("store/sweeps/searched/points/*"))


def test_an_interrupted_trial_continues_to_the_bits_of_the_release(run_here: Run, launch_here: Run, kept: Path) -> None:
    """To the bit on the kind of CPU that it was written on; another one may add up in another order."""
    (before,) = [one for one in records(kept / "store").values() if one["outcome"] == "running"]
    assert before["epoch"] >= 5
    answer = launch_here("interrupted.yaml", "--store", "store")
    assert answer.returncode == 0 and "1 new, 1 to continue" in answer.stdout, answer.stdout + answer.stderr
    after = records(kept / "store")[before["trial_id"]]
    assert [session["from_epoch"] for session in after["sessions"]] == [0, before["epoch"]]
    expected = json.loads((kept / "full.json").read_text())
    trained = {trial_id: rows for trial_id, rows in histories(kept / "store").items() if trial_id in expected}
    if device_model("cpu") == before["provenance"]["device_model"]:
        columns = {name for rows in expected.values() for row in rows for name in row}  # others have come since
        kept_columns = {
            trial_id: [{name: value for name, value in row.items() if name in columns} for row in rows]
            for trial_id, rows in trained.items()
        }
        assert json.loads(json.dumps(kept_columns)) == expected
    for trial_id, rows in expected.items():
        assert len(trained[trial_id]) == len(rows)
        assert trained[trial_id][-1]["train/loss"] == pytest.approx(rows[-1]["train/loss"], rel=1e-2)
    errors = [row["test/ece"] for row in trained[before["trial_id"]]]
    assert [error is None for error in errors] == [True] * before["epoch"] + [False] * (len(errors) - before["epoch"])
    again = launch_here("interrupted.yaml", "--store", "store")
    assert again.returncode == 0 and "nothing to start" in again.stdout


def test_what_has_ended_stays_and_a_search_goes_on_from_its_points(run_here: Run, launch_here: Run, kept: Path) -> None:
    store = Store(str(kept / "store"))
    before = {trial_id: store.files.read(f"trials/{trial_id}/record.json") for trial_id in store.files.names("trials")}
    for name in ("ended", "halved"):
        answer = launch_here(f"{name}.yaml", "--store", "store")
        assert "nothing to start" in answer.stdout, answer.stdout + answer.stderr
    spec = kept / "searched.yaml"
    spec.write_text(spec.read_text().replace("run_cap: 6", "run_cap: 10"))
    answer = launch_here("searched.yaml", "--store", "store", "--extend")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert status(run_here, "searched")["counts"]["finished"] == 10
    assert {trial_id: store.files.read(f"trials/{trial_id}/record.json") for trial_id in before} == before
    assert len(store.files.names("trials")) == len(before) + 4
