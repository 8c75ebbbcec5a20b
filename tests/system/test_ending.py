"""However a launch ends - by a signal, a kill, its Ray, its memory or its disk - it ends in time, and all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.scheduling import reaper
from polysweep.sweeps.worker.signals import SIGNALS
from tests.support.disks import small_disk as small_disk
from tests.support.ending import LASTING, Begin, living
from tests.support.ending import begin as begin
from tests.support.ending import mark as mark
from tests.support.results import histories, records
from tests.support.waiting import wait_for

SpecFile = Callable[..., Path]


def interrupt(process: subprocess.Popen[str], number: int, group: bool, mark: str) -> int:
    """Send it, and wait until all of the launch is gone; the exit code."""
    (os.killpg if group else os.kill)(process.pid, number)
    code = process.wait(60)
    wait_for(lambda: not living(mark), 60)
    return code


def is_documented(code: int, number: int) -> bool:
    """A signal before the first line of Python ends the process by itself, which a shell shows as the same number."""
    return code in (128 + number, -number)


@pytest.mark.parametrize(
    ("instant", "number", "group"),
    [
        (0.02, signal.SIGQUIT, False),
        (0.6, signal.SIGHUP, True),
        (2.5, signal.SIGTERM, False),
        pytest.param(4.5, signal.SIGINT, True, marks=pytest.mark.long),
    ],
)
def test_a_signal_as_a_launch_starts_ends_all_of_it(
    begin: Begin, mark: str, spec_file: SpecFile, tmp_path: Path, instant: float, number: int, group: bool
) -> None:
    """Whichever moment of its start it meets: the imports, the checks, Ray's start, or the first epochs."""
    store = tmp_path / "store"
    process = begin("-m", "polysweep", "launch", spec_file(**LASTING), "--store", store, isolated=True)
    time.sleep(instant)  # the instant itself
    code = interrupt(process, number, group, mark)
    assert process.stdout is not None
    text = process.stdout.read()
    assert is_documented(code, number), (code, text)
    assert "Traceback" not in text, text


@pytest.mark.long
def test_every_instant_of_a_start_and_every_signal_end_all_of_it_and_lose_nothing(
    begin: Begin, mark: str, spec_file: SpecFile, tmp_path: Path
) -> None:
    """The first 15 s in steps of half a second, or of ENDING_STEP seconds."""
    parameters = {**LASTING["parameters"], "epochs": {"value": 5000}}
    spec, store = spec_file(**{**LASTING, "parameters": parameters}), tmp_path / "store"
    undisturbed = tmp_path / "undisturbed"
    kinds = [(number, group) for group in (False, True) for number in (*SIGNALS, signal.SIGKILL)]
    step = float(os.environ.get("ENDING_STEP", "0.5"))
    epochs: dict[str, int] = {}
    for count in range(int(15 / step)):
        number, group = kinds[count % len(kinds)]
        process = begin("-m", "polysweep", "launch", spec, "--store", store, isolated=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(count * step)
        sent = time.monotonic()
        code = interrupt(process, number, group, mark)
        assert process.stdout is not None
        text = process.stdout.read()
        where = f"{signal.Signals(number).name} after {count * step} s, group: {group}: {code}\n{text}"
        assert is_documented(code, number), where
        assert "Traceback" not in text, where
        assert time.monotonic() - sent < 15, where
        now = {trial_id: record["epoch"] for trial_id, record in records(store).items()}
        assert all(now[trial_id] >= epoch for trial_id, epoch in epochs.items()), where
        epochs = now
    goals = {store: sum(epochs.values()) + 1, undisturbed: sum(epochs.values()) + 1}
    for place, goal in goals.items():
        process = begin("-m", "polysweep", "launch", spec, "--store", place, isolated=True)
        wait_for(lambda place=place, goal=goal: sum(r["epoch"] for r in records(place).values()) >= goal, 900, process)
        interrupt(process, signal.SIGTERM, False, mark)
    (disturbed,), (whole,) = histories(store).values(), histories(undisturbed).values()
    both = min(len(disturbed), len(whole))
    assert both >= goals[store] and disturbed[:both] == whole[:both]


@pytest.mark.parametrize(
    "lost",
    ["raylet/raylet", pytest.param("gcs/gcs_server", marks=pytest.mark.long),
     pytest.param("Agent", marks=pytest.mark.long)],
)  # fmt: skip
def test_a_ray_that_has_died_ends_the_launch_with_one_line(
    begin: Begin, mark: str, spec_file: SpecFile, tmp_path: Path, lost: str
) -> None:
    store = tmp_path / "store"
    process = begin("-m", "polysweep", "launch", spec_file(**LASTING), "--store", store, isolated=True)
    wait_for(lambda: any(r["epoch"] for r in records(store).values()), 120, process)
    reaper.kill([pid for pid, line in living(mark).items() if lost in line])
    said = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 2, said
    assert [line for line in said if line.startswith("error: ")] == said[-1:]
    assert "Ray has died (" in said[-1] and "rerun the same command to resume" in said[-1]
    assert all(line.startswith("small: ") for line in said[:-1]), "what starts, how far it is, and why it ended"
    wait_for(lambda: not living(mark), 60)


def test_a_ray_that_cannot_start_is_one_line(
    begin: Begin, mark: str, spec_file: SpecFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sockets' names would be too long."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    process = begin("-m", "polysweep", "launch", spec_file(**LASTING), "--store", tmp_path / "store", isolated=True)
    said = process.communicate(timeout=180)[0].splitlines()
    assert process.returncode == 2 and len(said) == 2, said
    assert said[1].startswith("error: Ray: ") and "AF_UNIX path length" in said[1]
    wait_for(lambda: not living(mark), 60)
    assert not list(folder.iterdir()), "nothing is left of it"


IMPATIENT = """
from polysweep.sweeps.scheduling import ray_environment as rayenv
prepare = rayenv.prepare
def then_impatient(*arguments, **options):
    prepare(*arguments, **options)  # before Ray is imported
    import polysweep.sweeps.scheduling.driver
    polysweep.sweeps.scheduling.driver.MEMORY_SECONDS = (0.1, 0.1)
rayenv.prepare = then_impatient
from polysweep.__main__ import main
main()
"""


@pytest.mark.long
def test_a_machine_without_memory_ends_the_launch_with_one_line_after_it_has_waited(
    begin: Begin, mark: str, spec_file: SpecFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's memory monitor ends every worker; no trial has failed, so it is not exit code 1."""
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")
    process = begin("-c", IMPATIENT, "launch", spec_file(**LASTING), "--store", tmp_path / "store", isolated=True)
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 2, said
    last = said.splitlines()[-1]
    assert last.startswith("error: a machine is short of memory (") and "launch.concurrency" in last
    assert "Traceback" not in said and "failed" not in said
    wait_for(lambda: not living(mark), 60)


@pytest.mark.long
def test_a_full_disk_ends_the_launch_with_one_line_after_one_patience(
    begin: Begin, mark: str, spec_file: SpecFile, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 trials in stacks of 3: not once a stack, nor once for each attempt."""
    monkeypatch.setenv("POLYSWEEP_STORE_PATIENCE", "4")
    parameters = {**LASTING["parameters"], "rho": {"values": [0.05 * k for k in range(1, 9)]}}
    spec = spec_file(
        **{**LASTING, "parameters": parameters, "seeds": 3, "launch": {"stack": 3, "checkpoint_seconds": 0}}
    )
    process = begin("-m", "polysweep", "launch", spec, "--store", small_disk / "store", isolated=True)
    wait_for(lambda: any(r["epoch"] for r in records(small_disk / "store").values()), 120, process)
    with (small_disk / "filler").open("wb") as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(1 << 16))
    full = time.monotonic()
    said = process.communicate(timeout=120)[0].splitlines()
    assert process.returncode == 2, said
    assert "No space left on device" in said[-1] and len(said) <= 3, said
    assert time.monotonic() - full < 30, "9 stacks, 4 attempts and 2 rounds would be 72 patiences"
