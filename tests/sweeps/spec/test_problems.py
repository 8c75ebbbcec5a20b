"""Problems of a spec: collected, sorted by line, reported together."""

from __future__ import annotations

from polysweep.sweeps.spec.problems import MOST_LINES, Problems
from polysweep.sweeps.spec.yaml_lines import Source, SpecError


def test_problems_are_sorted_by_line_and_one_that_is_met_twice_counts_once() -> None:
    problems = Problems(Source("f", {("a",): 3, ("b",): 1}))
    problems.add(("a",), "wrong")
    problems.add(("b", "c"), "wrong too")
    with problems.collecting():
        raise problems.where.error(("a",), "wrong")
    assert problems.report(["", "do this"]).shown == "f: 2 problems\nf:1: wrong too\nf:3: wrong\n\ndo this"


def test_a_problem_alone_is_an_error_of_one_line() -> None:
    problems = Problems(Source("f", {("a",): 3}))
    problems.add(("a",), "a word: wrong\nin two lines")
    assert type(problems.report()) is SpecError
    assert problems.report().shown == "f:3: a word: wrong in two lines"


def test_what_the_expansion_says_replaces_what_is_said_of_another_value() -> None:
    problems = Problems(Source("f", {("a",): 3}))
    problems.add(("a",), "rho: too small (got -2)")
    problems.add(("a",), "lr: too large")
    problems.replace(problems.where.error(("a",), "rho: too small (got -1)"))
    assert [error.reason for error in problems.errors] == ["lr: too large", "rho: too small (got -1)"]


def test_a_report_has_an_end() -> None:
    problems = Problems(Source("f", {("a", at): at for at in range(500)}))
    for at in range(500):
        problems.add(("a", at), "wrong")
    lines = problems.report().shown.splitlines()
    assert (len(lines), lines[-1]) == (MOST_LINES + 2, "... and 400 more")
