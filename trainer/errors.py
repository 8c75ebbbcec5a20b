"""What a user is told: errors that are one line and exit code 2, and the names that would have been right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """An error the user can fix: shown as one line, exit code 2, never a traceback."""

    @property
    def shown(self) -> str:
        """What the command prints: one line, whatever a user's code says."""
        return " ".join(str(self).splitlines())


class DataError(UserError):
    """A data set that is missing or damaged: the message names the file and what to do."""


class ConfigError(UserError):
    """A trial config that cannot be trained; `key` is the offending field."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(f"{key}: {message}")
        self.key = key


def expected(word: object, choices: Iterable[str]) -> str:
    """`did you mean 'rho'? expected one of ...` for an error message."""
    names = sorted(choices)
    by_spelling = {name.lower(): name for name in names}
    close = [by_spelling[one] for one in difflib.get_close_matches(str(word).lower(), by_spelling, n=1, cutoff=0.6)]
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}expected one of {', '.join(names)}"
