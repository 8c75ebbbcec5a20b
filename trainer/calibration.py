"""Measures on a device which width of a stack, and which share of the device, trains most rows a second."""

from __future__ import annotations

import ctypes
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import torch

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.cpus import CGROUPS, usable_cpus
from polysweep.trainer.curve import HEADROOM, Curve, Width
from polysweep.trainer.device import is_out_of_memory, keep_freed_memory
from polysweep.trainer.epoch import EpochRunner
from polysweep.trainer.stack.cuda_graph import cuda_graph
from polysweep.trainer.stack.stack import Stack
from polysweep.trainer.task import Task
from polysweep.trainer.tasks.loading import load_task
from polysweep.trainer.train import use_settings_of

MOST_ROWS: Final = {"cpu": 8, "cuda": 64}
"""The widest stack that is tried. A CPU has many cores, and many stacks keep them busy, not wide ones."""
SHARES: Final = (1, 2, 4, 8)
"""How many stacks are tried side by side on one GPU."""
STEPS: Final = 2
ROUNDS: Final = 3
ROUND_SECONDS: Final = 0.1
"""A width is timed at least so many times, and for so long."""
LIMIT_SECONDS: Final = 20.0
"""No wider stack is begun that would not be timed by then."""
SLOWER: Final = 1.1
"""More than other processes change: a K that seems as fast as a smaller one is no reason to end."""
SHARE_SECONDS: Final = 2.0
START_SECONDS: Final = 60.0
PR_SET_PDEATHSIG: Final = 1


def measure_widths(
    config: TrialConfig,
    *,
    device: str = "cpu",
    data: str | Path = "",
    threads: int = 1,
    fixed: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Curve | None:
    """Time a few steps of stacks of K = 1, 2, 4, ... copies of a trial, or of the `fixed` K alone.

    None if `stop`, read between steps, said so.

    It ends if a wider stack would not fit into the free memory, or take longer than `LIMIT_SECONDS` in all, and
    if two K in a row need `SLOWER` times as long for a row as the fastest. K is compared with the best so far in
    alternating rounds, in seconds of the processor if one thread computes, so that other processes change neither.
    """
    task = _prepare(config, device, data, threads)
    deadline = time.monotonic() + LIMIT_SECONDS
    free = free_memory(device)
    widths: list[Width] = []
    best: _TimedStack | None = None
    for width in _doublings(MOST_ROWS[torch.device(device).type]) if fixed is None else [fixed]:
        if widths and not _may_try(width, widths, HEADROOM * free, deadline - time.monotonic()):
            break
        try:
            new = _TimedStack(config, width, task, device, threads, stop)
            times = new.beside(best) if new.first_seconds * ROUNDS < LIMIT_SECONDS else (0.0, new.first_seconds_of_row)
        except Exception as error:
            if widths and is_out_of_memory(error):
                break
            raise
        if times is None:
            return None
        fastest = min(widths, key=lambda one: one.seconds, default=None)
        seconds = fastest.seconds * times[1] / times[0] if fastest else times[1]
        widths.append(Width(width, seconds, new.memory))
        if fastest is None or seconds < fastest.seconds:
            best = new
    return Curve(tuple(widths), free)


def _doublings(most: int) -> Iterator[int]:
    width = 1
    while width <= most:
        yield width
        width *= 2


def _may_try(width: int, widths: Sequence[Width], memory: float, seconds_left: float) -> bool:
    """Whether a stack of this K is worth trying, and fits into the memory and the time."""
    fastest = min(one.seconds for one in widths)
    if len(widths) > 2 and min(one.seconds for one in widths[-2:]) > SLOWER * fastest:
        return False
    rows = width * (1 + ROUNDS) + sum(one.width * ROUNDS for one in widths if one.seconds == fastest)
    return widths[-1].memory * width / widths[-1].width <= memory and rows * STEPS * fastest <= seconds_left


def _prepare(config: TrialConfig, device: str, data: str | Path, threads: int) -> Task:
    """The process's settings, and the samples of a few steps."""
    torch.set_num_threads(threads)
    use_settings_of(config.precision)
    keep_freed_memory()
    return load_task(config, data, device).few(STEPS * config.batch_size)


class _TimedStack:
    """A stack of copies of a trial, and how long its steps take."""

    def __init__(
        self, config: TrialConfig, width: int, task: Task, device: str, threads: int, stop: Callable[[], bool]
    ) -> None:
        self._on_gpu = torch.device(device).type == "cuda"
        before = _memory_in_use(device)
        _reset_peak(device)
        self._width, self._stop = width, stop
        self._clock = time.thread_time if not self._on_gpu and threads == 1 else time.perf_counter
        self._runner = EpochRunner(Stack([config] * width, task, device), cuda_graph if self._on_gpu else None)
        began = time.monotonic()
        self._runner.run(1, 0, stop)  # captures, and lets libraries choose
        self.first_seconds = time.monotonic() - began
        self.first_seconds_of_row = self.first_seconds / STEPS / width
        self.memory = max(0, _memory_in_use(device, peak=True) - before)

    def seconds(self) -> float | None:
        """Of one row and step; None if it was stopped."""
        began = self._clock()
        result = self._runner.run(1, 0, self._stop)
        return None if result is None else (self._clock() - began) / result.steps / self._width

    def beside(self, other: _TimedStack | None) -> tuple[float, float] | None:
        """The least seconds of `other` and of this one, in alternating rounds; None if they were stopped."""
        began = time.monotonic()
        times: list[tuple[float, float]] = []
        while len(times) < ROUNDS or time.monotonic() - began < ROUND_SECONDS:
            of_other, own = other.seconds() if other else 0.0, self.seconds()
            if of_other is None or own is None:
                return None
            times.append((of_other, own))
        return min(one for one, _ in times), min(own for _, own in times)

    def rate(self, seconds: float) -> float:
        """Rows and steps a second, over some seconds."""
        began, steps = time.monotonic(), 0
        while (spent := time.monotonic() - began) < seconds:
            result = self._runner.run(1, 0, self._stop)
            steps += 0 if result is None else result.steps
        return steps * self._width / spent


def measure_shares(
    config: TrialConfig, curve: Curve, *, device: str, data: str | Path, threads: int
) -> dict[int, float]:
    """Rows and steps a second of 1, 2, 4, ... stacks side by side on one device, each of the curve's best K.

    They are processes of their own. It ends if they would not fit into the memory, would not have cores of their
    own, or are no faster than half as many. Raises what a process by itself raises.
    """
    rates: dict[int, float] = {}
    width = curve.best(1.0)
    memory = next(one.memory for one in curve.widths if one.width == width)
    for count in SHARES:
        fits = count * memory <= HEADROOM * curve.free and count * threads <= usable_cpus()
        if count > 1 and not (fits and rates[count // 2] >= max(rates.values())):
            break
        context = get_context("spawn")  # CUDA does not survive a fork
        start = context.Barrier(count)
        with ProcessPoolExecutor(count, context, _wait_at, (start,)) as stacks:
            each = [stacks.submit(_rate, config.canonical(), width, device, str(data), threads) for _ in range(count)]
            try:
                rates[count] = sum(one.result() for one in each)
            except Exception:
                if count == 1:
                    raise
                break  # several do not fit
    return rates


_start: Any = None  # the barrier of processes that are timed together


def _wait_at(start: Any) -> None:
    """Prepare a process: it begins when the others do, and ends with the one that has started it."""
    global _start  # noqa: PLW0603
    _start = start
    with suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _rate(values: dict[str, Any], width: int, device: str, data: str, threads: int) -> float:
    config = TrialConfig.parse(values, recorded=True)
    try:
        stack = _TimedStack(config, width, _prepare(config, device, data, threads), device, threads, lambda: False)
    except BaseException:
        _start.abort()  # the others would wait for ever
        raise
    _start.wait(START_SECONDS)
    return stack.rate(SHARE_SECONDS)


def free_memory(device: str) -> int:
    """Bytes that are free on the device, or for this process's control group."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    free = _kilobytes(Path("/proc/meminfo"), "MemAvailable:") or 2**63 - 1  # not known here
    with suppress(OSError, ValueError):  # "max" is no number
        limit, used = (int((CGROUPS / f"memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, limit - used)
    return max(0, free)


def _memory_in_use(device: str, *, peak: bool = False) -> int:
    """Bytes in use by this process on the device, now or at the peak since it was reset."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) if peak else torch.cuda.memory_allocated(device)
    return _kilobytes(Path("/proc/self/status"), "VmHWM:" if peak else "VmRSS:")


def _reset_peak(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def _kilobytes(file: Path, name: str) -> int:
    """The bytes of a line of /proc that counts kilobytes; 0 if there is none."""
    with suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith(name):
                return 1024 * int(line.split()[1])
    return 0
