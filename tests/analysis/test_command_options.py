"""Options that several commands of the analysis share."""

from __future__ import annotations

import re

import pytest

from polysweep.analysis.command_options import parse_where, split_fields
from polysweep.trainer.errors import UserError


def test_fields_are_split_at_commas_and_none_stays_none() -> None:
    assert split_fields(" rho, ,scheduler ,") == ["rho", "scheduler"]
    assert split_fields("") == [] and split_fields(None) is None


def test_a_value_is_all_that_follows_the_first_equals_sign() -> None:
    assert parse_where(["gamma_b=1.0", "note=a=b"]) == {"gamma_b": "1.0", "note": "a=b"}


@pytest.mark.parametrize("text", ["gamma_b", "gamma_b=", "=1.0"])
def test_a_condition_without_a_field_or_a_value_is_refused(text: str) -> None:
    message = f"--where: {text!r}; expected FIELD=VALUE, such as gamma_b=1.0"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        parse_where([text])
