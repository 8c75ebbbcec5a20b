"""Decisions in words."""

from __future__ import annotations

import pytest

from polysweep.sweeps.planning.decision_lines import amount_text, compared_text, decision_lines, look_line
from polysweep.sweeps.spec.decisions import Choice, Compared, Decisions, Look, by_key
from polysweep.sweeps.spec.protocol import Replication
from tests.support.replicated_worlds import world_spec

SHOWN = Compared(("a", "b"), "polyak", "constant", "rho=0.1", 5, 0.0031, 0.0012, 0.005, "better")
OPEN_ONE = Compared(("a", "c"), "polyak", "lin", "", 5, -0.00001, -0.002, 0.002, "not decided")
DIVERGED = Compared(("d", "e"), "polyak", "constant", "rho=0.4", 0, None, None, None, "both diverge", ("3/3", "3/3"))


@pytest.mark.parametrize(
    ("one", "metric", "text"),
    [
        (SHOWN, "test/top1", "rho=0.1: scheduler polyak better than constant by 0.31 points [0.12, 0.50], n = 5"),
        (
            OPEN_ONE,
            "test/top1",
            "scheduler polyak and lin: not decided, difference 0.00 points [-0.20, 0.20], n = 5",
        ),
        (DIVERGED, "test/top1", "rho=0.4: scheduler polyak and constant: both diverge, diverged 3/3 and 3/3, n = 0"),
        (SHOWN, "test/loss", "rho=0.1: scheduler polyak better than constant by 0.0031 [0.0012, 0.0050], n = 5"),
    ],
)
def test_a_comparison(one: Compared, metric: str, text: str) -> None:
    assert compared_text(one, "scheduler", metric) == text


def test_a_difference_that_rounds_to_nothing_has_no_sign() -> None:
    assert (amount_text(-0.00001, "test/top1"), amount_text(-0.001, "test/top1")) == ("0.00", "-0.10")


def test_looks_say_what_is_open() -> None:
    replication = Replication(compare="scheduler", looks=[3, 5])
    look = Look(1, 3, 0.0123, {}, 2, (SHOWN, OPEN_ONE))
    assert look_line(look, replication) == "look 1 of 2, 3 seeds, each test at 0.012: open comparisons: 1 of 2"
    last = Look(2, 5, 0.04, {}, 2, (SHOWN,))
    assert look_line(last, replication).endswith("every comparison is decided")


def test_what_is_decided_is_listed_once_and_what_is_open_at_the_last_look() -> None:
    spec = world_spec()
    cell = next(iter(by_key(spec.tuning_trials)))
    first, last = Look(1, 3, 0.01, {}, 2, (SHOWN, OPEN_ONE)), Look(2, 5, 0.04, {}, 2, (OPEN_ONE,))
    choices = {cell: Choice(cell, "b"), "gone": Choice("gone", "c")}
    lines = decision_lines(spec.settings, Decisions(choices, (first, last), 7), spec.trials)
    assert lines[0] == "protocol: tuned on seeds 0, 1, 2, reported on seeds 3, 4, 5; 1 of 8 cells have chosen"
    assert lines[1].startswith("replicate: 7 of the trials that are compared had begun before it was asked for")
    assert [line.startswith("look ") for line in lines[2:4]] == [True, True]
    assert sum("better than" in line for line in lines) == 1 == sum("not decided" in line for line in lines)
