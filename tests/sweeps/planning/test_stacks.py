"""Rows of one signature, K and epoch are trained together, and no others."""

from __future__ import annotations

from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.store.states import TrialState
from tests.support.specs import GOOD, parse


def test_a_plan_groups_rows_of_one_signature_width_and_epoch() -> None:
    spec = parse(GOOD + "launch: {stack: 4}\n")
    ids = [t.trial_id for t in spec.trials]
    known = {
        ids[0]: TrialState("finished", 4, 2),
        ids[1]: TrialState("interrupted", 4, 1),
        ids[2]: TrialState("interrupted", 2, 1),
        ids[3]: TrialState("running", 4, 1, "host (pid 1)"),
        ids[4]: TrialState("failed", 4, 1),
    }
    made = plan(spec, known)
    assert [(stack.width, stack.epoch, len(stack.trials)) for stack in made.stacks] == [
        (4, 1, 1), (2, 1, 1), (4, 0, 4), (4, 0, 4), (4, 0, 4), (4, 0, 1),
    ]  # fmt: skip
    assert made.counts() == {
        "trials": 18, "new": 13, "interrupted": 2, "running": 1, "finished": 1, "diverged": 0, "failed": 1,
        "stopped": 0,
    }  # fmt: skip


def test_different_signatures_never_share_a_stack() -> None:
    spec = parse(
        GOOD.replace("optimizer: {value: usam}", "optimizer: {values: [usam, sam]}\n  batch_size: {values: [64, 128]}")
        + "launch: {stack: 9}\n"
    )
    for stack in plan(spec, {}).stacks:
        assert len({t.config.signature for t in stack.trials}) == 1
    assert any(len({t.config.optimizer for t in stack.trials}) == 2 for stack in plan(spec, {}).stacks)
