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
from polysweep.sweeps.spec.search import Point, Suggestion
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.files import NewerFormatError, StoreError
from polysweep.sweeps.store.store import Store
from polysweep.trainer import config as config_module
from polysweep.trainer.components import plugins
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.lab import lab as lab
from tests.support.made import SPEC, by_lr, sweep
from tests.support.made_sweeps import ids, invoke, spec_of
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


def test_without_the_plug_in_everything_but_a_launch_works(lab: Path) -> None:
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
        del sys.modules[name]  # for good: monkeypatch would bring it back for the next test
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


# damaged lists


def test_what_is_no_list_of_trials_is_named(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_sweep(spec_of())
    whole = json.loads(store.files.read("sweeps/tiny/sweep.json") or b"")
    settings = whole["sweep"]
    damaged: list[Any] = [
        {"format": 1, "trials": [3]}, {"format": 1, "sweep": 3, "trials": []}, {**whole, "format": "99"},
        {**whole, "format": 1.5}, {**whole, "columns": None}, {**whole, "order": ["nobody"]},
        {**whole, "shared": {"config": {**whole["shared"]["config"], "epochs": 10**400}}},
        {**whole, "shared": {"config": {**whole["shared"]["config"], "epochs": "3"}}},
        *({**whole, "sweep": {**settings, name: value}} for name, value in (
            ("metric", {**settings["metric"], "name": None}), ("metric", {**settings["metric"], "goal": "more"}),
            ("launch", {**settings["launch"], "cpus": "x"}), ("launch", {**settings["launch"], "cpus": 10**400}),
            ("points", "x"), ("tuned", "lr"), ("ranges", [[0, "lr"]]), ("text", None))),
    ]  # fmt: skip
    for content in (b"[" * 100_000, b"{}", *(json.dumps(one).encode() for one in damaged)):
        store.files.write("sweeps/tiny/sweep.json", content)
        with pytest.raises(StoreError, match=r"sweep\.json: damaged"):
            store.launched("tiny")
    store.files.write("sweeps/tiny/sweep.json", json.dumps({"format": 3, "sweep": {}, "members": []}).encode())
    with pytest.raises(NewerFormatError, match="has format 3"):
        store.launched("tiny")
    with pytest.raises(NewerFormatError):
        store.sweeps_of({"a"})


def test_one_damaged_sweep_leaves_the_tags_of_the_others(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_sweep(spec_of())
    store.files.write("sweeps/other/sweep.json", b"{")
    first = ids(spec_of())[0]
    assert store.sweeps_of({first}) == {first: ["tiny"]}


def test_a_part_whose_writer_was_killed_is_passed_over(tmp_path: Path) -> None:
    """On a file system without links a file can be there without its content."""
    store = Store(str(tmp_path))
    (tmp_path / "sweeps" / "tiny").mkdir(parents=True)
    (tmp_path / "sweeps" / "tiny" / "sweep.json").touch()
    with pytest.raises(StoreError, match="its writer was killed; launch again"):
        store.launched("tiny")
    store.write_sweep(spec_of())
    (tmp_path / "sweeps" / "tiny" / "sweep-0002.json").touch()
    store.write_sweep(spec_of(seeds=2))
    assert ids(store.launched("tiny")) == ids(spec_of(seeds=2))
    assert store.sweeps_of({ids(spec_of())[0]}) == {ids(spec_of())[0]: ["tiny"]}
    (tmp_path / "sweeps" / "tiny" / "points").mkdir()
    for name in ("000000.json", "._000000.json", "copy.json"):
        (tmp_path / "sweeps" / "tiny" / "points" / name).touch()
    assert (
        store.search.add_suggestion("tiny", Suggestion(Point(0, {"rho": 0.1})), 0)
        and len(store.search.suggestions("tiny")) == 1
    )
    (tmp_path / "sweeps" / "tiny" / "rungs").mkdir()
    (tmp_path / "sweeps" / "tiny" / "rungs" / "a-1.json").touch()
    assert not store.search.decide("tiny", ["a"], 1, False, {"epoch": 1}) and store.search.ended_early("tiny", "a")


def test_the_spec_is_not_needed_for_reading_what_was_launched(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.write_sweep(spec_of())
    path = tmp_path / "sweeps" / "tiny" / "spec.yaml"
    path.unlink()
    path.mkdir()
    assert store.launched("tiny").text == spec_of().text
    assert invoke("status", "tiny", "--store", str(tmp_path))[0] == 0
