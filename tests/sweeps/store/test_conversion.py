"""Stores of older versions are converted once, and nothing of them is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.sweeps.planning.status import status_of
from polysweep.sweeps.store.store import Store
from polysweep.trainer import config as config_module
from tests.support.made_sweeps import as_older_version, finish, ids, spec_of


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
