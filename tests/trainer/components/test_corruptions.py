"""Corruptions by name and severity."""

from __future__ import annotations

import pytest

from polysweep.trainer.components.corruptions import ALL, Corruption, parse
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import is_accuracy


def test_a_name_and_a_severity_are_one_word_and_one_metric() -> None:
    assert parse("noise-3") == Corruption(name="noise", severity=3)
    assert parse("noise-3").metric == "test/noise-3" and is_accuracy("last/test/noise-3")
    assert len(ALL) == 20 and ALL[0] == ("noise", 1) and ALL[-1] == ("occlusion", 5)


@pytest.mark.parametrize("text", ["noise", "noise-0", "noise-6", "Noise-1", "noise-03", "fog-1", ""])
def test_another_one_is_refused_with_all_that_are_valid(text: str) -> None:
    with pytest.raises(UserError) as refusal:
        parse(text)
    assert str(refusal.value) == (
        f"unknown corruption {text!r}; expected NAME-SEVERITY, such as noise-3: "
        "NAME one of noise, blur, contrast, occlusion; SEVERITY 1 to 5"
    )
