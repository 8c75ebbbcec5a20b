"""What a launch would start, and with which K."""

from __future__ import annotations

from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.store.states import TrialState
from tests.support.specs import GOOD, parse


def test_the_width_of_a_new_trial_does_not_depend_on_how_many_are_left() -> None:
    spec = parse(GOOD)
    done = {t.trial_id: TrialState("finished", 8, 2) for t in spec.trials[:-1]}
    (stack,) = plan(spec, done).stacks
    (first, *_) = plan(spec, {}).stacks
    assert (stack.width, len(stack.trials)) == (first.width, 1)
