"""Everything around the scheduling of a launch: what it refuses, what is over already, and its settings."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from polysweep.sweeps.commands.launch import patience, start, use_wandb_settings
from polysweep.sweeps.job import LaunchOptions
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from polysweep.trainer.cpus import usable_cpus
from polysweep.trainer.errors import UserError
from tests.support.made_trials import fake
from tests.support.specs import GOOD

SpecFile = Callable[..., Path]
OPTIONS = LaunchOptions("disabled")
SMALL: dict[str, Any] = {"variants": [{"scheduler": {"value": "polyak"}}], "tuned": [], "seeds": 1}


def never(*_: object) -> NoReturn:
    """In place of the scheduling."""
    raise AssertionError("something was started")


@pytest.mark.parametrize(("outcome", "code"), [("finished", 0), ("failed", 1)])
def test_a_sweep_whose_trials_have_ended_starts_nothing(
    spec_file: SpecFile, tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: str, code: int
) -> None:
    spec, store = SweepSpec.load(spec_file(**SMALL)), Store(str(tmp_path / "store"))
    fake(store, spec, outcome)
    assert start(spec, store, OPTIONS, never) == code
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"small: nothing to start, all 2 trials have ended (2 {outcome})"
    assert store.sweeps() == ["small"], "its list of trials is kept all the same"


def test_another_spec_of_a_name_in_use_is_refused_and_changes_nothing(spec_file: SpecFile, tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    store.write_sweep(SweepSpec.load(spec_file()))
    before = store.launched("small")
    other = SweepSpec.load(spec_file(metric={"name": "test/loss", "goal": "minimize"}))
    with pytest.raises(UserError) as caught:
        start(other, store, OPTIONS, never)
    assert str(caught.value) == (
        "the sweep name 'small' is in use by another spec (metric.name: test/top1 -> test/loss; "
        "metric.goal: maximize -> minimize): --extend keeps its trials and adds those of this one; "
        "else give this one another name"
    )
    assert store.launched("small") == before


def test_settings_of_the_environment_go_before_those_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    assert patience() == 600.0
    monkeypatch.setenv("POLYSWEEP_STORE_PATIENCE", "2.5")
    assert patience() == 2.5
    for wrong in ("soon", "-1", "inf", "nan"):
        monkeypatch.setenv("POLYSWEEP_STORE_PATIENCE", wrong)
        with pytest.raises(UserError, match=f"^POLYSWEEP_STORE_PATIENCE: '{wrong}'; expected a number of seconds >= 0"):
            patience()
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_ENTITY", "")
    use_wandb_settings("theirs", "lab")
    assert (os.environ["WANDB_PROJECT"], os.environ["WANDB_ENTITY"]) == ("mine", "lab")


def test_more_cores_than_there_are_are_refused_before_anything_is_written(
    run_here: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "file.yaml").write_text(GOOD + "launch: {cpus: 4096}\n")
    answer = run_here("launch", "file.yaml", "--store", "store")
    assert answer.returncode == 2 and answer.stdout == ""
    assert answer.stderr == f"error: launch.cpus: 4096 per stack, but this machine has {usable_cpus()} cores\n"
    assert not (tmp_path / "store" / "sweeps").exists(), "nothing was launched"
