"""The parts of a sweep's list of trials, and the sweep that they add up to."""

from __future__ import annotations

from pathlib import Path

from polysweep.sweeps.store.store import Store
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
