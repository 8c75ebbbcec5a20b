"""What is wrong with a spec file: collected, then reported together, each problem at its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from polysweep.sweeps.spec.yaml_lines import KeyPath, Source, SpecError, SpecReportError
from polysweep.trainer.text import one_line

MOST_LINES: Final = 100
"""Problems that a report lists; a file with more has one cause for many of them."""


class Problems:
    """The problems of one spec file. One that is found again, at the same line in the same words, counts once."""

    def __init__(self, where: Source) -> None:
        self.where = where
        self._errors: dict[tuple[int, str], SpecError] = {}

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, path: KeyPath, message: str) -> None:
        """A problem at the line of `path`."""
        self.take(self.where.error(path, message))

    def take(self, error: SpecError) -> None:
        """A problem that was raised, or collected elsewhere."""
        self._errors.setdefault((error.line, error.reason), error)

    def has(self, line: int, beginning: str) -> bool:
        """Whether there is a problem at this line that begins with these words."""
        return any(error.line == line and error.reason.startswith(beginning) for error in self._errors.values())

    def at(self, path: KeyPath) -> list[str]:
        """What is said at the line of `path`."""
        line = self.where.error(path, "").line
        return [error.reason for error in self._errors.values() if error.line == line]

    def replace(self, error: SpecError) -> None:
        """A problem that was raised, instead of one at the same line that says the same of another value."""
        if (error.line, error.reason) in self._errors:
            return
        rule = error.reason.partition(" (got ")[0]
        for key, other in list(self._errors.items()):
            if other.line == error.line and other.reason.partition(" (got ")[0] == rule:
                del self._errors[key]
        self.take(error)

    def override(self, errors: Sequence[SpecError]) -> None:
        """Problems instead of all others at their lines, which follow from them."""
        lines = {error.line for error in errors}
        self._errors = {key: error for key, error in self._errors.items() if error.line not in lines}
        for error in errors:
            self.take(error)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """In here the first problem that is raised is kept, and ends the block."""
        try:
            yield
        except SpecError as error:
            self.take(error)

    @property
    def errors(self) -> list[SpecError]:
        """All of them, by line."""
        return sorted(self._errors.values(), key=lambda error: error.line)

    def report(self, advice: Sequence[str] = ()) -> SpecError:
        """One error for all of them: itself if there is one, else a line for each; then the lines of `advice`."""
        errors = self.errors
        if len(errors) == 1 and not advice:
            return errors[0]
        lines = [one_line(str(error)) for error in errors[:MOST_LINES]]
        if len(errors) > 1:
            lines.insert(0, f"{self.where.name}: {len(errors)} problems")
        if len(errors) > MOST_LINES:
            lines.append(f"... and {len(errors) - MOST_LINES} more")
        return SpecReportError("\n".join([*lines, *advice]), errors[0].line, errors[0].reason)
