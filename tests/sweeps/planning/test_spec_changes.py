"""What differs between a spec and the sweep that was launched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.planning.spec_changes import compare
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store

SpecFile = Callable[..., Path]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": {"name": "test/loss", "goal": "minimize"}}, ("metric.name: test/top1 -> test/loss", "metric.goal")),
        ({"method": "random", "run_cap": 2}, ("method: grid -> random",)),
        (
            {
                "early_terminate": {"type": "hyperband", "min_iter": 1},
                "metric": {"name": "test/top1", "goal": "maximize"},
            },
            ("early_terminate: none -> type=hyperband",),
        ),
    ],
)
def test_what_decides_otherwise_is_a_change(
    spec_file: SpecFile, tmp_path: Path, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    store = Store(str(tmp_path / "store"))
    store.write_sweep(SweepSpec.load(spec_file()))
    changed = compare(SweepSpec.load(spec_file(**change)), store).changed
    for word in words:
        assert any(word in line for line in changed), changed
    assert compare(SweepSpec.load(spec_file(tuned=[])), store).changed == ()
