"""Results outlive the code: what a launch has recorded is read without expanding a spec, by any later version."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.sweeps.planning.status import status_of
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store import history_file
from polysweep.sweeps.store.store import Store
from polysweep.trainer import config as config_module
from polysweep.trainer.components import plugins
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.lab import lab as lab
from tests.support.made import SPEC, by_lr, sweep
from tests.support.made_sweeps import TINY, ids, invoke, spec_of
from tests.support.project import ROOT

# the code has changed


def test_results_outlive_another_number_of_numerics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = select(sweep(tmp_path, by_lr)).cells
    monkeypatch.setattr(config_module, "NUMERICS", config_module.NUMERICS + 1)
    store = Store(str(tmp_path))
    found = status_of(store.launched("made"), store)
    assert found["counts"]["finished"] == found["counts"]["trials"] == 24 and found["cells"][0]["cell"] == {
        "rho": 0.1, "scheduler": "constant",
    }  # fmt: skip
    after = select(pull("made", store=store, cache=tmp_path / "other-cache")).cells
    assert after.equals(before)
    changed = SweepSpec.parse(json.dumps(SPEC), "made.yaml")
    assert not {trial.trial_id for trial in changed.trials} & set(ids(store.launched("made"))), "it does change the ids"


def test_a_column_that_a_later_version_has_added_is_null_in_older_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = select(sweep(tmp_path, by_lr)).cells
    monkeypatch.setattr(history_file, "HISTORY_COLUMNS", (*HISTORY_COLUMNS, "curvature"))
    store = Store(str(tmp_path))
    assert status_of(store.launched("made"), store)["counts"]["finished"] == 24
    runs = pull("made", store=store, cache=tmp_path / "other-cache")
    assert select(runs).cells.equals(before)
    assert runs.history["curvature"].isna().all() and len(runs.history) == 72
    assert store.history(ids(store.launched("made"))[0])[0]["curvature"] is None


def test_a_check_or_default_that_has_changed_since_changes_nothing_that_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(tmp_path, by_lr)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a config was parsed")

    monkeypatch.setattr(config_module.TrialConfig, "parse", refuse)
    monkeypatch.setattr(config_module.TrialConfig, "model_validate", refuse)
    monkeypatch.setattr(SweepSpec, "parse", refuse)
    store = Store(str(tmp_path))
    assert status_of(store.launched("made"), store)["counts"]["finished"] == 24
    assert len(select(pull("made", store=store, cache=tmp_path / "other-cache")).cells) == 4


def test_without_the_plug_in_everything_but_a_launch_works(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own parts are gone: only plan and launch need them."""
    store = Store(str(lab / "store"))
    spec = SweepSpec.load(lab / "mine.yaml")
    store.write_sweep(spec)
    for trial in spec.trials:
        row = {**dict.fromkeys(HISTORY_COLUMNS, 0.5), "step": 9, "partial": False}
        store.write_history(trial.trial_id, [{**row, "epoch": epoch + 1} for epoch in range(trial.epochs)])
        record = {"outcome": "finished", "width": 1, "epoch": trial.epochs, "seconds": 1.0, "sessions": [], "notes": []}
        store.write_record(trial.trial_id, record)
    shutil.rmtree(lab / "my_lab")
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_lab"]:
        monkeypatch.delitem(sys.modules, name)
    plugins._own.cache_clear()
    place = ("--store", store.root)
    for command in (
        ("status", "mine"),
        ("table", "mine", "--cache", str(lab / "cache")),
        ("logs", "mine", spec.trials[0].trial_id),
        ("stop", "mine"),
    ):
        code, output = invoke(*command, *place)
        assert code == 0, output
    assert "my_lab.rules:DecSPS" in invoke("table", "mine", "--cache", str(lab / "cache"), *place)[1]
    with pytest.raises(UserError, match="cannot import my_lab"):
        invoke("plan", str(lab / "mine.yaml"), *place)


def test_reading_needs_neither_torch_nor_the_configs_code(tmp_path: Path) -> None:
    sweep(tmp_path, by_lr)
    code = f"""
import sys
from polysweep import pull, select
from polysweep.cli import app
from polysweep.sweeps.commands.printing import show_status
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.planning.status import status_of
from polysweep.sweeps.store.launches import launches
store = Store({str(tmp_path)!r})
assert status_of(store.launched("made"), store)["counts"]["finished"] == 24
assert not launches(store, "made")
assert len(select(pull("made", store=store, cache={str(tmp_path / "other")!r})).cells) == 4
unwanted = ("torch", "ray", "wandb", "polysweep.trainer.config", "polysweep.sweeps.spec.spec")
print([name for name in unwanted if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# several launches


def test_an_older_launch_that_ends_later_takes_nothing_back(tmp_path: Path) -> None:
    older, newer = Store(str(tmp_path)), Store(str(tmp_path))
    older.write_sweep(spec_of())
    newer.write_sweep(spec_of(seeds=3))
    older.sweep_records.append("tiny", spec_of().settings, spec_of().trials)  # what it may still write
    assert ids(Store(str(tmp_path)).launched("tiny")) == ids(spec_of(seeds=3))
    assert older.launched("tiny").text == spec_of(seeds=3).text


def test_trials_keep_the_order_of_the_file_as_it_grows(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    wide = TINY["parameters"] | {"rho": {"values": [0.05, 0.1, 0.15, 0.2]}}
    for spec in (spec_of(), spec_of(parameters=wide, seeds=2), spec_of(seeds=2), spec_of(parameters=wide)):
        store.write_sweep(spec)
        found = store.launched("tiny")
        assert ids(found) == ids(spec)
        assert [trial.cell for trial in found.trials] == [trial.cell for trial in spec.trials]
    assert len(found.gone) == 4, "trials that have left the file are kept"
    store.write_sweep(spec)
    parts = [name for name in store.files.names("sweeps/tiny") if name.startswith("sweep")]
    assert len(parts) == 4, "a launch that adds nothing writes nothing"


def _add(root: str, barrier: Any, seed: int) -> None:
    store, spec = Store(root), spec_of(seeds=[0, seed])
    barrier.wait()
    store.sweep_records.append("tiny", spec.settings, spec.trials)


def test_of_launches_that_add_trials_at_once_none_is_lost(root: str) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(4)
    adders = [context.Process(target=_add, args=(root, barrier, seed)) for seed in range(1, 5)]
    for adder in adders:
        adder.start()
    for adder in adders:
        adder.join(120)
    found = Store(root).launched("tiny")
    assert {trial.seed for trial in found.trials} == {0, 1, 2, 3, 4} and len(found.trials) == 10
    assert len(set(ids(found))) == 10
