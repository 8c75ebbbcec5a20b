"""A claim: how much, in which unit, which cells it compares, and its hash."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from polysweep.sweeps.spec.preregistration import Amount, Claim, Preregistration, read_amount, unit_problem

BETTER = {"better": {"scheduler": "polyak"}, "than": {"scheduler": "constant"}}


def claim(**changes: object) -> Claim:
    return Claim.model_validate({**BETTER, "metric": "test/top1", **changes})


@pytest.mark.parametrize(
    ("text", "amount", "words"),
    [("0.2 points", (0.2, True), "0.2 points"), (" 20points ", (20, True), "20 points"), (0, (0, False), "0"),
     (0.05, (0.05, False), "0.05"), ("1e-3", (0.001, False), "0.001"), ("0 points", (0, False), "0"),
     ("0.12345678 points", (0.12345678, True), "0.12345678 points"), (12345678.9, (12345678.9, False), "12345678.9")],
)  # fmt: skip
def test_an_amount_is_a_number_or_percentage_points(text: object, amount: tuple[float, bool], words: str) -> None:
    assert read_amount(text) == amount and str(Amount(*amount)) == words
    assert read_amount(words) == amount, "as the Store keeps it"
    assert read_amount("0.2 points").value == pytest.approx(0.002)


@pytest.mark.parametrize("text", [-1, "-0.1 points", "many", "0.2 %", True, float("nan"), "1e999",
                                  None, [1], "200 points", "1_0 points", "\u0663 points"])  # fmt: skip
def test_anything_else_is_none(text: object) -> None:
    with pytest.raises(ValidationError, match=r"a number >= 0, or such as '0\.2 points'"):
        claim(by=text)


def test_points_are_of_accuracies_and_accuracies_need_them() -> None:
    assert unit_problem(read_amount(0.2), "test/top1") == (
        "0.2 of an accuracy needs a unit: '0.2 points' are percentage points, '20 points' the fraction 0.2"
    )
    assert "'0.1 points': test/loss is no accuracy" in unit_problem(read_amount("0.1 points"), "test/loss")
    for by, metric in ((0, "test/top1"), ("0.2 points", "val/top5"), (0.2, "test/loss")):
        assert unit_problem(read_amount(by), metric) == ""


def test_it_compares_the_cells_that_agree_in_all_that_both_have() -> None:
    cells = [
        {"rho": rho, "scheduler": scheduler, **({"gamma_b": gamma_b} if gamma_b else {})}
        for rho in (0.1, 0.4)
        for scheduler, gamma_b in (("constant", None), ("cosine", None), ("polyak", 0.5), ("polyak", 1.0))
    ]
    assert list(claim().pairs(cells)) == [(2, 0), (3, 0), (6, 4), (7, 4)]
    assert list(claim(over={"rho": [0.4], "gamma_b": [1]}).pairs(cells)) == [(7, 4)]
    assert list(claim(over={"rho": 0.4, "gamma_b": 1}).pairs(cells)) == [(7, 4)], "one value is a list of one"
    assert list(claim(than={"scheduler": "sgd"}).pairs(cells)) == []
    assert list(claim(over={"gamma_b": [True]}).pairs(cells)) == [], "1 is not true"


def test_in_words_and_what_has_changed() -> None:
    whole = claim(by="0.2 points", over={"rho": [0.1, 0.4]})
    assert str(whole) == (
        "scheduler=polyak beats scheduler=constant by at least 0.2 points on test/top1 (rho in 0.1, 0.4)"
    )
    assert str(claim()) == "scheduler=polyak beats scheduler=constant on test/top1"
    first = Preregistration((whole, claim()), {"seeds": "0, 1"})
    same = Preregistration((claim(over={"rho": [0.1, 0.4]}, by="0.20points"), claim()), {"seeds": "0, 1"}, "later", 3)
    assert first.changes_to(same) == [] and first.hash != same.hash, "the hash is of the time too"
    assert first.changes_to(Preregistration((claim(), whole), {"seeds": "0"})) == ["claims", "seeds: 0, 1 -> 0"]
