"""Runs and histories from a Store: what has changed is read again, and what is damaged is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from polysweep.analysis.data.from_store import protocol_of
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.tables.choice import select
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from tests.support.made import SPEC, by_lr, cell, sweep


def test_a_cache_notices_every_changed_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(tmp_path, lambda c: "new" if c.seed == 2 else by_lr(c))
    store = Store(str(tmp_path))
    read: list[str] = []
    histories = Store.histories

    def counted(self: Store, trial_ids: Any) -> Any:
        asked = list(trial_ids)
        read.extend(asked)
        return histories(self, asked)

    monkeypatch.setattr(Store, "histories", counted)
    before = pull("made", store=store, cache=tmp_path / "cache")
    assert read == [], "all that had ended was in the cache"
    trial = before.runs[before.runs["outcome"] == "finished"]["trial_id"].iloc[0]
    rows = store.history(trial)
    for row in rows:
        row["test/top1"] += 0.01
    store.write_history(trial, rows)
    after = pull("made", store=store, cache=tmp_path / "cache")
    assert read == [trial]
    best = dict(zip(before.runs["trial_id"], before.runs["best/test/top1"], strict=True))
    changed = dict(zip(after.runs["trial_id"], after.runs["best/test/top1"], strict=True))
    assert changed.pop(trial) == best.pop(trial) + 0.01
    assert {k: v for k, v in changed.items() if v is not pd.NA} == {k: v for k, v in best.items() if v is not pd.NA}
    assert after.history.equals(pull("made", store=store, cache=tmp_path / "fresh").history)


def test_a_trial_that_has_started_since_is_read(tmp_path: Path) -> None:
    sweep(tmp_path, lambda c: "new" if c.seed == 2 else by_lr(c))
    first = select(pull("made", store=str(tmp_path), cache=tmp_path / "cache"))
    assert cell(first, 0.1, "polyak")["missing"] == 1
    whole = sweep(tmp_path, by_lr)
    assert cell(select(whole), 0.1, "polyak")["n"] == 3 and len(whole.history) == 72


def test_another_metric_of_the_same_sweep_is_scored_anew(tmp_path: Path) -> None:
    first = sweep(tmp_path, by_lr)
    text = json.dumps({**SPEC, "metric": {"name": "test/loss", "goal": "minimize"}})
    Store(str(tmp_path)).write_sweep(SweepSpec.parse(text, "made.yaml"))
    second = pull("made", store=str(tmp_path), cache=tmp_path / "cache")
    assert second.protocol.metric == "test/loss"
    assert second.runs["best_epoch"].tolist() == first.runs["best_epoch"].tolist()


def test_a_store_on_an_object_store_is_read_through_the_same_cache(root: str, tmp_path: Path) -> None:
    sweep(tmp_path / "made", by_lr)
    local, remote = Store(str(tmp_path / "made")), Store(root)
    spec = SweepSpec.parse(local.launched("made").text, "made.yaml")
    remote.write_sweep(spec)
    for trial in spec.trials[:6]:
        remote.write_history(trial.trial_id, local.history(trial.trial_id))
        remote.write_record(trial.trial_id, local.record(trial.trial_id) or {})
    first = pull("made", store=remote, cache=tmp_path / "cache")
    assert first.runs["outcome"].tolist() == ["finished"] * 6 + ["new"] * 18
    stamps = remote.stamps([trial.trial_id for trial in spec.trials])
    assert len(stamps) == 6 and stamps == remote.stamps([trial.trial_id for trial in spec.trials])
    victim = spec.trials[0].trial_id
    rows = remote.history(victim)
    rows[1]["test/top1"] = 0.123
    remote.write_history(victim, rows)
    assert remote.stamps([victim])[victim] != stamps[victim]
    assert pull("made", store=remote, cache=tmp_path / "cache").history["test/top1"][1] == 0.123


def test_a_finished_trial_without_its_history_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, by_lr)
    victim = pulled.runs["trial_id"].iloc[0]
    (tmp_path / "trials" / victim / "history.parquet").unlink()
    for _ in range(2):  # as read, and from the cache
        runs = pull("made", store=Store(str(tmp_path)), cache=tmp_path / "cache").runs.set_index("trial_id")
        assert runs.loc[victim, "outcome"] == "failed"
        assert f"{victim}/history.parquet: damaged: 0 epochs of 3 of a finished trial" in runs.loc[victim, "error"]
        assert (runs.drop(victim)["outcome"] == "finished").all() and runs.drop(victim)["best/test/top1"].notna().all()


def test_runs_have_config_best_and_last_and_provenance(tmp_path: Path) -> None:
    pulled = sweep(tmp_path, lambda c: "diverged" if c.lr == 1.0 else by_lr(c))
    assert len(pulled.runs) == 24 and len(pulled.history) == 3 * 18 + 6
    run = pulled.runs[(pulled.runs["lr"] == 0.1) & (pulled.runs["rho"] == 0.1)].iloc[0]
    assert (run["best_epoch"], run["best/test/top1"], run["last/test/top1"]) == (2, 0.89, 0.89 - 0.05)
    assert (run["sweep"], run["outcome"], run["commit"], run["version.torch"]) == (
        "made",
        "finished",
        "c0ffee",
        "2",
    )
    diverged = pulled.runs[pulled.runs["outcome"] == "diverged"]
    assert len(diverged) == 6
    assert diverged[[c for c in diverged if c.startswith(("best/", "last/"))]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("entry", "values", "edges"),
    [
        ({"min": 0.0, "max": 1.0}, (0.5, 0.06), set()),
        ({"min": 0.0, "max": 1.0}, (0.5, 0.04), {0.04}),
        ({"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0}, (0.1, 2e-4), set()),
        ({"distribution": "log_uniform_values", "min": 1e-4, "max": 1.0}, (0.1, 1.2e-4, 0.9), {1.2e-4, 0.9}),
        ({"distribution": "normal", "mu": 0.5, "sigma": 0.1}, (0.1, 0.9), set()),
        ({"values": [0.01, 0.1, 0.2]}, (0.1, 0.2), {0.2}),
        ({"value": 0.1}, (0.1,), set()),
        ({"values": [0.1]}, (0.1,), set()),
        ({"distribution": "q_uniform", "min": 0.05, "max": 1.0, "q": 0.1}, (0.1, 0.5), {0.1}),
    ],
)
def test_the_edge_of_a_drawn_search_is_that_of_its_range(entry: dict, values: tuple, edges: set) -> None:
    """Not of the values that happened to be drawn: of two one would always be the smallest."""
    text = {**SPEC, "method": "random", "run_cap": 3, "tuned": ["lr"], "metric": SPEC["metric"]}
    text["variants"] = [{"scheduler": {"value": "constant"}, "lr": entry}]
    found = protocol_of(SweepSpec.parse(json.dumps(text), "drawn.yaml").as_sweep(), "here").ranges.get((0, "lr"))
    assert {value for value in values if found is not None and found.is_at_end(value)} == edges


def test_a_field_that_a_later_version_added_is_read_again_for_cached_trials(tmp_path: Path) -> None:
    """The sweep was launched, and pulled, when configs had no label noise; now it varies, and is 0 there."""
    sweep(tmp_path, by_lr)
    file = tmp_path / "sweeps" / "made" / "sweep.json"
    kept = json.loads(file.read_text())
    kept["columns"].remove("label_noise")
    del kept["shared"]["config"]["label_noise"]
    file.write_text(json.dumps(kept))
    old = pull("made", store=str(tmp_path), cache=tmp_path / "cache")
    assert "label_noise" not in old.runs
    noisy = {**SPEC["parameters"], "label_noise": {"values": [0, 0.2]}}
    now = sweep(tmp_path, by_lr, parameters=noisy).runs
    assert now["label_noise"].isna().sum() == 0 and (now["label_noise"] == 0).sum() == len(old.runs)
