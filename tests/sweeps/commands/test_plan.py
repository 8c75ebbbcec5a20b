"""`polysweep plan`: what a launch would start and what is probably not intended, without writing anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from polysweep.sweeps.commands.plan import plan_launch
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.store import Store
from tests.support.made_trials import fake

SpecFile = Callable[..., Path]
POLYAK = [{"scheduler": {"value": "polyak"}}]


def test_a_planned_launch_has_its_counts_changes_and_warnings_and_writes_nothing(
    spec_file: SpecFile, tmp_path: Path
) -> None:
    store = Store(str(tmp_path / "store"))
    first = SweepSpec.load(spec_file(variants=POLYAK, tuned=[], seeds=1))
    store.write_sweep(first)
    fake(store, first)
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    planned = plan_launch(
        SweepSpec.load(spec_file(variants=POLYAK, tuned=[], seeds=3, program="train.py", launch={"stack": 3})),
        store,
        str(tmp_path),
    )
    counts = planned.plan.counts()
    assert (counts["trials"], counts["new"], counts["finished"]) == (6, 4, 2)
    assert [len(stack.trials) for stack in planned.plan.stacks] == [3, 1] and planned.estimate.stacks == 2
    assert planned.extension.changed == () and planned.extension.gone == 0
    assert planned.warnings == ("ignored: program (polysweep has its own trainer)",)
    assert planned.plan.data == str(tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()} == before
