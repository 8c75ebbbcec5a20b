"""Options that are null or lists, from the spec to the tables: one id, one cell and one column for each value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.wandb_runs import describe
from tests.support.project import TINY

MODELS = """
from torch import nn
from polysweep import Options, declare

class NetOptions(Options):
    sizes: tuple[int, ...] = (8,)
    norm: int | None = None

@declare(options=NetOptions)
def net(input_shape, classes, sizes, norm):
    assert isinstance(sizes, tuple)
    widths = [64, *sizes]
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in zip(widths, widths[1:])]
    last = nn.LayerNorm(widths[-1]) if norm else nn.Identity()
    return nn.Sequential(nn.Flatten(), *layers, last, nn.Linear(widths[-1], classes))
"""
SPEC = """\
name: nets
parameters:
  task: {value: digits}
  model: {value: "nets_of_mine:net"}
  model_options:
    parameters:
      sizes: {values: [[8], [8, 4], []]}
      norm: {values: [null, 1]}
  optimizer: {value: sgd}
  scheduler: {value: constant}
  lr: {value: 0.1}
  epochs: {value: 1}
  batch_size: {value: 512}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nets_of_mine.py").write_text(MODELS)
    (tmp_path / "nets.yaml").write_text(SPEC)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_null_and_lists_are_values_of_options_everywhere(folder, run_here, launch_here) -> None:
    planned = json.loads(run_here("plan", "nets.yaml", "--json").stdout)
    assert planned["counts"]["trials"] == len({trial["trial_id"] for trial in planned["trials"]}) == 6
    assert planned["cells"][0] == {"model_options.sizes": [8], "model_options.norm": None}
    assert planned["trials"][1]["config"]["model_options"] == {"norm": 1}, "a default is left out"
    assert planned["trials"][2]["config"]["model_options"] == {"sizes": [8, 4]}
    assert "model_options.sizes=[8, 4]" in run_here("plan", "nets.yaml").stdout
    launched = launch_here("nets.yaml")
    assert (launched.returncode, "6 finished" in launched.stdout) == (0, True), launched.stderr + launched.stdout
    assert "nothing to start" in launch_here("nets.yaml").stdout
    store = Store(str(folder / "polysweep-store"))
    sweep = store.launched("nets")
    assert [trial.values["model_options.sizes"] for trial in sweep.trials[::2]] == [(8,), (8, 4), ()]
    assert [trial.config.trial_id for trial in sweep.trials] == [trial["trial_id"] for trial in planned["trials"]]
    for trial in sweep.trials:
        stored = store.config(trial.trial_id)
        runs = [describe(trial.trial_id, canonical, trial.values) for canonical in (stored, trial.config.canonical())]
        assert runs[0] == runs[1], "the group on W&B is the same whoever writes the run"
    runs = pull("nets", store=store).runs
    assert runs["model_options.sizes"].tolist()[::2] == ["[8]", "[8, 4]", "[]"]
    assert runs["model_options.norm"].isna().tolist() == [True, False] * 3
    table = run_here("table", "nets", "--format", "csv", "--metric", "test/top1")
    assert (table.returncode, table.stdout.count("[8, 4]")) == (0, 2), table.stderr + table.stdout


def test_a_setting_of_train_may_be_null_or_a_list(folder, run_here) -> None:
    settings = [f"{name}={value}" for name, value in TINY.items() if name not in ("model", "epochs")]
    options = ["model=nets_of_mine:net", "epochs=1", "model_options.sizes=[4, 4]", "model_options.norm=null"]
    trained = run_here("train", *settings, *options, "--wandb", "disabled")
    assert trained.returncode == 0, trained.stderr
    assert "model_options.norm" in run_here("train", *settings, *options[:3], "model_options.norm=").stderr


def test_other_values_of_options_are_refused(folder) -> None:
    for options in ({"sizes": [[1]]}, {"sizes": {"a": 1}}, {"norm": [1]}, {"sizes": [float("nan")]}):
        with pytest.raises(ValueError, match="model_options"):
            TrialConfig.parse({**TINY, "model": "nets_of_mine:net", "model_options": options})
