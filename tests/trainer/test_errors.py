"""What a user is told: the field, and the names that would have been right."""

from __future__ import annotations

import pytest

from polysweep.trainer.errors import ConfigError, DataError, UserError, expected


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("roh", "did you mean 'rho'? expected one of epochs, lr, rho"),
        ("epoch", "did you mean 'epochs'? expected one of epochs, lr, rho"),
        ("momentum", "expected one of epochs, lr, rho"),
        (3, "expected one of epochs, lr, rho"),
        ("", "expected one of epochs, lr, rho"),
    ],
)
def test_the_nearest_name_is_offered_if_one_is_near(word: object, sentence: str) -> None:
    assert expected(word, iter(["rho", "lr", "epochs"])) == sentence


def test_an_error_of_a_config_keeps_the_field_and_begins_with_it() -> None:
    error = ConfigError("rho", "-1 is negative")
    assert (error.key, str(error)) == ("rho", "rho: -1 is negative")
    assert isinstance(error, UserError) and issubclass(DataError, UserError) and issubclass(UserError, ValueError)
