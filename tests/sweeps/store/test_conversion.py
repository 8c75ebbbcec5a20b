"""Stores of older and of newer versions, and lists of trials that are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from tests.support.made_sweeps import as_older_version, finish, ids, invoke, spec_of

# older and newer Stores


def test_an_older_store_is_converted_once_and_nothing_is_lost(tmp_path: Path) -> None:
    store, spec = Store(str(tmp_path)), spec_of(seeds=2)
    as_older_version(store, spec_of(seeds=[0, 1]), gone=["feedfeedfeedfeed"])
    finish(store, ids(spec)[0])
    found = store.launched("tiny")
    assert ids(found) == ids(spec) and [trial.trial_id for trial in found.gone] == ["feedfeedfeedfeed"]
    assert [trial.values for trial in found.trials] == [trial.values for trial in spec.trials]
    assert "sweep.json" in store.files.names("sweeps/tiny") and "trials.json" in store.files.names("sweeps/tiny")
    again = Store(str(tmp_path)).launched("tiny")
    assert (again.trials, again.gone, again.settings) == (found.trials, found.gone, found.settings)
    assert status_of(again, store)["counts"]["finished"] == 1


def test_an_older_store_of_other_numerics_is_read_by_its_own_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, spec = Store(str(tmp_path)), spec_of(seeds=2)
    as_older_version(store, spec)
    finish(store, *ids(spec))
    monkeypatch.setattr(config_module, "NUMERICS", config_module.NUMERICS + 1)
    found = store.launched("tiny")
    assert ids(found) == ids(spec)
    assert [trial.cell for trial in found.trials] == [trial.cell for trial in spec.trials]
    assert status_of(found, store)["counts"]["finished"] == 4


def test_an_older_store_whose_spec_cannot_be_read_any_more(tmp_path: Path) -> None:
    store, spec = Store(str(tmp_path)), spec_of(seeds=2)
    as_older_version(store, spec)
    text = spec.text.replace('"polyak"', '"no_such_module:Rule"')
    store.files.write("sweeps/tiny/spec.yaml", text.encode())
    finish(store, *ids(spec))
    for trial in spec.trials:  # as the config of such a trial is: the default of epochs is not in it
        config = {name: value for name, value in trial.config.canonical().items() if name != "epochs"}
        store.write_config(trial.trial_id, {**config, "scheduler": "no_such_module:Rule"})
        store.write_record(trial.trial_id, {**(store.record(trial.trial_id) or {}), "epochs": 1})
    found = store.launched("tiny")
    assert {trial.epochs for trial in found.trials} == {1}
    assert len(pull("tiny", store=store, cache=tmp_path / "cache").history) == 4
    assert ids(found) == ids(spec) and found.settings.fields[:2] == ("task", "model")
    assert [trial.cell for trial in found.trials] == [trial.cell for trial in spec.trials]
    store.files.remove("sweeps/tiny/sweep.json")
    store.files.remove("sweeps/tiny/spec.yaml")
    assert ids(store.launched("tiny")) == ids(spec), "also without spec.yaml"
    assert store.sweeps() == ["tiny"]


def newer_record(store: Store, spec: SweepSpec) -> None:
    path = f"trials/{ids(spec)[0]}/record.json"
    store.files.write(path, json.dumps({"format": 99, "outcome": {"new": "words"}}).encode())


def newer_sweep(store: Store, _: SweepSpec) -> None:
    store.files.write("sweeps/tiny/sweep-0001.json", b'{"format": 2, "trials": []}')


@pytest.mark.parametrize("newer", [newer_record, newer_sweep])
def test_a_store_of_a_newer_version_is_refused_and_left_alone(
    tmp_path: Path, newer: Callable[[Store, SweepSpec], None]
) -> None:
    store, spec = Store(str(tmp_path / "store")), spec_of()
    store.write_sweep(spec)
    finish(store, *ids(spec))
    newer(store, spec)
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    (tmp_path / "tiny.yaml").write_text(spec.text)
    place = ("--store", str(tmp_path / "store"))
    for command in (
        ("status", "tiny"),
        ("table", "tiny", "--cache", str(tmp_path / "cache")),
        ("plan", str(tmp_path / "tiny.yaml")),
        ("launch", str(tmp_path / "tiny.yaml"), "--retry-failed"),
        ("launch", str(tmp_path / "tiny.yaml")),
    ):
        code, output = invoke(*command, *place)
        assert code == 2 and "this version of polysweep reads up to" in output, output
    after = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert after == before


def test_a_checkpoint_of_a_newer_version_is_not_taken_for_damage(tmp_path: Path) -> None:
    import torch

    from polysweep.sweeps.store.checkpoints import read_checkpoint

    store = Store(str(tmp_path))
    torch.save({"format": 99}, tmp_path / "newer.pt")
    store.files.write("trials/ab/checkpoint.pt", (tmp_path / "newer.pt").read_bytes())
    with pytest.raises(NewerFormatError, match=r"ab/checkpoint\.pt has format 99"):
        read_checkpoint(store, {"trial_id": "ab", "width": 1, "epoch": 3})


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
    store.files.write("sweeps/tiny/sweep.json", json.dumps({"format": 2, "sweep": {}, "members": []}).encode())
    with pytest.raises(NewerFormatError, match="has format 2"):
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


def test_an_older_unfinished_store_of_other_numerics_is_read_with_trials_that_never_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their places in the list; without a spec by what the others share."""
    for has_spec in (True, False):
        store, spec = Store(str(tmp_path / str(has_spec))), spec_of(seeds=2)
        as_older_version(store, spec)
        started = [trial.trial_id for trial in spec.trials if trial.seed == 0]
        for trial_id in set(ids(spec)) - set(started):
            store.files.remove(f"trials/{trial_id}/config.json")
        finish(store, *started)
        if not has_spec:
            store.files.remove("sweeps/tiny/spec.yaml")
        monkeypatch.setattr(config_module, "NUMERICS", config_module.NUMERICS + 1)
        found = store.launched("tiny")
        assert [trial.values for trial in found.trials] == [trial.values for trial in spec.trials]
        cells = select(pull("tiny", store=store, cache=tmp_path / f"cache-{has_spec}")).cells
        assert cells["n"].tolist() == [1, 1] and cells["missing"].tolist() == [1, 1]


def test_an_older_store_is_not_converted_while_a_launch_of_that_version_may_run(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    as_older_version(store, spec_of())
    store.files.write("sweeps/tiny/launch-ab.json", b"{}")
    assert ids(store.launched("tiny")) == ids(spec_of())
    as_older_version(store, spec_of(seeds=2))
    assert ids(store.launched("tiny")) == ids(spec_of(seeds=2)), "what it adds is seen"
