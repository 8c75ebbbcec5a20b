"""A step as a CUDA graph: captured once per shape of its inputs, then replayed with one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""From a function of no arguments that works on fixed tensors to one that does the same work again."""

WARM_UP: Final = 3
"""Runs on a side stream before a capture: libraries choose their algorithms and allocate in the first ones."""


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """Capture `work`, which has been run before, on the current device.

    `thread_local`: another thread may copy a checkpoint to the host meanwhile.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph.replay


class Replay:
    """Calls `step(*inputs)` by replaying captures of it.

    `tensors` gives everything that a step replaces and `put` goes on from such a list. From the first call on they stay
    the same tensors, which every step overwrites: a graph knows addresses, not names.
    """

    def __init__(
        self,
        step: Callable[..., None],
        tensors: Callable[[], Sequence[Tensor]],
        put: Callable[[list[Tensor]], None],
        capture: Capture,
    ) -> None:
        self._step = step
        self._tensors = tensors
        self._put = put
        self._capture = capture
        self._fixed: list[Tensor] = []
        self._captured: dict[tuple[torch.Size, ...], tuple[list[Tensor], Callable[[], None]]] = {}

    def __call__(self, *inputs: Tensor) -> None:
        """One step."""
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self._captured:
            self._captured[shapes] = self._prepare(inputs)
        fixed, replay = self._captured[shapes]
        for place, value in zip(fixed, inputs, strict=True):
            place.copy_(value)
        replay()

    def close(self) -> None:
        """Release the captures and their memory now, not at some later garbage collection."""
        self._captured.clear()

    def _prepare(self, inputs: Sequence[Tensor]) -> tuple[list[Tensor], Callable[[], None]]:
        if not self._fixed:
            self._fixed = [tensor.clone() for tensor in self._tensors()]
            self._put(self._fixed)
        fixed_inputs = [tensor.clone() for tensor in inputs]
        before = [tensor.clone() for tensor in self._fixed]

        def work() -> None:
            self._step(*fixed_inputs)
            for place, value in zip(self._fixed, self._tensors(), strict=True):
                place.copy_(value)
            self._put(self._fixed)

        device = self._fixed[0].device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            self._warm_up(work)
            replay = self._capture(work)
        for place, value in zip(self._fixed, before, strict=True):
            place.copy_(value)  # neither the warm-up nor the capture was a step of the training
        return fixed_inputs, replay

    def _warm_up(self, work: Callable[[], None]) -> None:
        device = self._fixed[0].device
        if device.type != "cuda":
            work()
            return
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream(device).wait_stream(side)
