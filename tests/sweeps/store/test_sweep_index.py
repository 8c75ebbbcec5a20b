"""The parts of a sweep's list of trials, and the sweep that they add up to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from polysweep.sweeps.store.store import Store
from polysweep.sweeps.store.sweep_index import added, assembled, from_json, in_order, to_json
from tests.support.made_sweeps import TINY, ids, spec_of


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


def test_the_parts_of_a_sweep_add_up_to_it() -> None:
    small, large = spec_of(seeds=[1]), spec_of(seeds=[1, 2], metric={"name": "test/loss", "goal": "minimize"})
    first = added(None, small.settings, small.trials)
    assert first is not None
    before = assembled("tiny", [first])
    assert before.trials == small.trials and before.settings == small.settings
    assert added(before, small.settings, small.trials) is None
    second = added(before, large.settings, large.trials)
    assert second is not None and len(second["trials"]) == 2, "the new ones only"
    after = assembled("tiny", [json.loads(json.dumps(part)) for part in (first, second)])
    assert after.trials == large.trials and after.settings == large.settings
    assert from_json(json.loads(json.dumps(to_json(after)))) == after


def test_a_field_that_a_later_version_added_is_listed_for_older_trials_once_it_varies() -> None:
    """Else those without it would be of one cell with new ones that have it."""
    small = spec_of(seeds=[1])
    large = spec_of(seeds=[1], parameters={**TINY["parameters"], "label_noise": {"values": [0, 0.2]}})
    older = [replace(one, values={k: v for k, v in one.values.items() if k != "label_noise"}) for one in small.trials]
    first = added(None, small.settings, older)
    assert first is not None
    before = assembled("tiny", [first])
    assert added(before, small.settings, small.trials) is None, "a launch that adds nothing writes nothing"
    second = added(before, large.settings, large.trials)
    assert second is not None
    after = assembled("tiny", [first, second])
    assert after.trials == large.trials and not after.gone
    assert [trial.cell["label_noise"] for trial in after.trials] == [one.config.label_noise for one in large.trials]


def test_fields_of_several_configs_keep_the_order_of_each() -> None:
    assert in_order([{"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}, {"d": 1}]) == ["d", "a", "b", "c"]
