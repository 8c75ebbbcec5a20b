"""Some cells of a selection, by the values of their fields."""

from __future__ import annotations

import pytest

from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.subset import only, parse_only
from polysweep.trainer.errors import UserError


def test_lines_figures_and_cells_are_asked_for_as_those_of_tables(optimizers: Selection) -> None:
    sam = only(optimizers, {"optimizer": "sam,usam", "weight_decay": 0})
    assert len(sam.cells) == 2 * 2 * 4 and len(sam.candidates) == 2 * 4 * (3 + 1)
    one = next(figures(sam, cols=["optimizer", "scheduler"]))
    assert one.name == "robustness-weight_decay-0", "no other figure over all optimizers"
    labels = [text.get_text() for text in one.figure.legends[0].get_texts()]
    assert sorted(labels) == ["sam, constant", "sam, polyak", "usam, constant", "usam, polyak"]
    assert next(figures(sam, by="optimizer")).name == "robustness-optimizer-usam-weight_decay-0"
    assert len(only(optimizers, {"rho": "-"}).cells) == 4, "cells to which the radius does not apply"
    with pytest.raises(UserError, match=r"--cols: 'rho' is the horizontal axis of the plots; --only rho=VALUE draws"):
        figures(optimizers, cols="rho")
    for wanted, message in (
        ({"optimizer": "adam"}, r"--only: no cell has optimizer=adam; .*expected one of sam, sgd, usam"),
        ({"lr": 0.1}, r"--only: 'lr' is tuned: each cell has its chosen value"),
        ({"optimizer": "sgd", "rho": 0.1}, r"--only: no cell has all of optimizer=sgd rho=0.1"),
    ):
        with pytest.raises(UserError, match=message):
            only(optimizers, wanted)
    for texts_, message in ((["a"], "expected FIELD=VALUE"), (["a=1", "a=2"], "'a' is given twice; .* a=1,...")):
        with pytest.raises(UserError, match=message):
            parse_only(texts_)
