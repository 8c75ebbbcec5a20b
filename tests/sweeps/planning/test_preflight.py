"""What is found wrong or strange before a trial is claimed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.planning.preflight import data_folder, remarks
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from tests.support.specs import GOOD

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_what_may_not_be_meant_is_warned_of(run_here: Run, tmp_path: Path) -> None:
    polyak = GOOD.replace("epochs: {value: 2}", "epochs: {value: 2}\n  momentum: {values: [0.0, 0.9]}")
    assert polyak != GOOD
    (tmp_path / "file.yaml").write_text(polyak)
    answer = run_here("plan", "file.yaml")
    assert answer.returncode == 0
    assert answer.stderr.count("warning: momentum with scheduler polyak: the step size is derived") == 1


@pytest.mark.parametrize(
    ("changes", "warns"),
    [
        ({"optimizer": "adamw"}, True),
        ({"optimizer": "sam", "base": "adamw", "rho": 0.1}, True),
        ({"optimizer": "sgdw", "momentum": 0.9}, True),
        ({"optimizer": "adamw", "weight_decay": 0.01}, False),
        ({"optimizer": "adam"}, False),
    ],
)
def test_decoupled_weight_decay_of_zero_is_warned_of(changes: dict[str, object], warns: bool) -> None:
    config = TrialConfig.parse({"task": "digits", "model": "mlp", "scheduler": "constant", "lr": 0.01, **changes})
    assert any("with weight_decay 0 is" in text for text in remarks(config)) == warns


def test_the_folder_of_the_data_is_the_options_then_the_specs_and_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert data_folder("a", "b") == f"{tmp_path}/a" and data_folder(None, "b") == f"{tmp_path}/b"
    assert data_folder(None) == f"{tmp_path}/polysweep-data" and data_folder("~/data") == "/home/me/data"
    with pytest.raises(UserError, match=r"^--data-dir or POLYSWEEP_DATA: empty; expected the folder of the data sets$"):
        data_folder("", "b")
    with pytest.raises(UserError, match=r"^launch\.data_dir: ~nobody-at-all/x: no such user$"):
        data_folder(None, "~nobody-at-all/x")
