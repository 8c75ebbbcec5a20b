"""A stand-in for CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable


class Recorder:
    """Stands in for a CUDA graph: replays the work on the tensors it was captured with."""

    def __init__(self) -> None:
        self.captures = 0
        self.replays = 0

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        self.captures += 1
        work()  # a real capture runs the Python code too

        def replay() -> None:
            self.replays += 1
            work()

        return replay
