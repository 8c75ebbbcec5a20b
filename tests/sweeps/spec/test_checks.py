"""What must hold between the keys of a spec: the whole words, and the line of the offending key."""

from __future__ import annotations

import pytest

from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.specs import GOOD, parse

SEARCH = GOOD.replace("grid", "bayes").replace("{values: [0.1, 0.2]}", "{min: 0.05, max: 0.4}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + "run_cap: 10\n", "file.yaml:15: run_cap: 10 is not a multiple of the 3 seeds; use 9 or 12"),
        (GOOD + "run_cap: 2\n", "file.yaml:15: run_cap: 2 is not a multiple of the 3 seeds; use 3"),
        (
            SEARCH.replace("seeds: 3\n", "run_cap: 4\n")
            .replace("tuned", "name: file\ntuned")
            .replace("  epochs:", "  seed: {values: [3, 4]}\n  epochs:"),
            "file.yaml:9: 'seed' is not searched; use seeds",
        ),
        (
            GOOD.replace("metric: {name: test/top1, goal: maximize}\n", "")
            + "early_terminate: {type: hyperband, min_iter: 1}\n",
            "file.yaml:14: early_terminate requires a 'metric': {name: ..., goal: maximize or minimize}",
        ),
        (
            SEARCH + "run_cap: 6\nlaunch: {stack: 2}\n",
            "file.yaml:16: launch.stack: 2, but with bayes or early_terminate a stack is one point with its 3 seeds; "
            "leave it out, or use 1",
        ),
    ],
)
def test_keys_that_do_not_fit_each_other_are_refused_at_the_line_of_one(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_a_stack_of_all_seeds_and_a_cap_of_whole_points_are_taken() -> None:
    spec = parse(SEARCH + "run_cap: 6\nlaunch: {stack: 3}\n")
    assert (spec.points, spec.launch.stack, spec.by_points) == (2, 3, True)


def test_trials_are_counted_before_they_are_expanded() -> None:
    """A seed that is a parameter of its own is counted once."""
    swept = GOOD.replace("seeds: 3\n", "").replace("parameters:", f"parameters:\n  seed: {{values: {[*range(9)]}}}")
    assert len(parse(swept).trials) == 9 * (2 * 2 + 2)
    with pytest.raises(SpecError, match=r"^file.yaml:1: 1000002 trials; a sweep has at most 1000000$"):
        parse(GOOD.replace("seeds: 3", "seeds: 166667"))
