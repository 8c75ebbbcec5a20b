"""Signals in any instant and any state, and what does not hear them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from polysweep import __version__
from polysweep.cli import app
from polysweep.sweeps.worker.signals import SIGNALS
from tests.support.ending import Begin, said
from tests.support.ending import begin as begin
from tests.support.ending import mark as mark


def script(body: str) -> str:
    """A program that has taken its signals over, and says so."""
    return f"""
import os, signal, subprocess, sys, threading, time
from polysweep.sweeps.worker import signals as module
from polysweep.sweeps.worker.signals import Interruption, shielded
interruption = Interruption()
module.REPEAT_SECONDS = 0.0
def ready():
    print("ready", flush=True)
{body}
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_command_with_128_and_its_number(begin: Begin, number: int) -> None:
    process = begin("-c", script("interruption.install()\nready()\ntime.sleep(60)"))
    assert said(process) == "ready"
    os.kill(process.pid, number)
    assert process.wait(30) == 128 + number


@pytest.mark.parametrize("is_worker", [False, True])
def test_a_command_says_that_it_is_interrupted_and_a_worker_does_not(begin: Begin, is_worker: bool) -> None:
    """Ray ends every worker by a signal when a launch is over, and shows on the laptop what it prints."""
    body = f"""
interruption = Interruption(is_worker={is_worker})
asked = threading.Event()
interruption.start_in_order(asked.set, 10)
ready()
asked.wait()
while any(thread.name != "signals" for thread in threading.enumerate()[1:]):
    time.sleep(0.01)
"""
    process = begin("-c", script(body))
    assert said(process) == "ready"
    os.kill(process.pid, signal.SIGTERM)
    process.wait(30)
    assert process.stdout is not None
    assert ("interrupted: saving" in process.stdout.read()) == (not is_worker)


def test_a_signal_whose_exception_is_lost_ends_the_command_all_the_same(begin: Begin) -> None:
    """In a destructor Python goes on after it."""
    body = """
interruption.grace = 0.2
interruption.install(for_process=True)
class Lasting:
    def __del__(self):
        ready()
        time.sleep(60)
Lasting()
print("lost", flush=True)
time.sleep(60)
"""
    process = begin("-c", script(body))
    assert said(process) == "ready"
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(30) == 143
    assert process.stdout is not None and process.stdout.read() == "lost\n", "and no traceback"


def test_what_is_to_end_in_order_is_asked_to_stop_by_a_thread_and_not_broken_off(begin: Begin) -> None:
    """The handler itself does nothing: the lock that it would need is held by whom it interrupts."""
    body = """
lock, asked = threading.Lock(), threading.Event()
def ask():
    with lock:
        asked.set()
with interruption.in_order(ask):
    with lock:
        ready()
        while not interruption.signal:
            time.sleep(0.01)
    asked.wait()
    print("in order", flush=True)
sys.exit(interruption.exit_code)
"""
    process = begin("-c", script(body))
    assert said(process) == "ready"
    os.kill(process.pid, signal.SIGHUP)
    assert process.wait(30) == 129
    assert process.stdout is not None and "in order" in process.stdout.read()


@pytest.mark.parametrize("second", [signal.SIGTERM, None])
def test_who_does_not_end_in_order_is_ended_by_a_second_signal_or_by_time(begin: Begin, second: int | None) -> None:
    """Also while the Store does not answer, and while the main thread is in a library that never comes back."""
    body = f"""
with interruption.in_order(lambda: (ready(), time.sleep(600)), {600 if second else 0.3}):
    ready()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""
    process = begin("-c", script(body))
    assert said(process) == "ready"
    os.kill(process.pid, signal.SIGTERM)
    assert said(process) == "ready"  # it has been asked to stop
    if second:
        os.kill(process.pid, second)
    assert process.wait(30) == 143


def test_what_cannot_go_on_and_does_not_end_is_ended_with_one_line(begin: Begin) -> None:
    body = """
with interruption.in_order(seconds=0.2):
    interruption.give_up("Ray has died")
    time.sleep(60)
"""
    process = begin("-c", script(body))
    assert process.wait(30) == 2
    assert process.stdout is not None and process.stdout.read() == "error: Ray has died\n"


def test_a_hangup_that_is_ignored_stays_ignored(begin: Begin) -> None:
    body = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
interruption.install()
os.kill(os.getpid(), signal.SIGHUP)
sys.exit(interruption.signal)
"""
    assert begin("-c", script(body)).wait(30) == 0


def test_shielded_processes_do_not_hear_their_groups_signals_and_their_parent_does(begin: Begin) -> None:
    body = """
with interruption.in_order():
    with shielded():
        child = subprocess.Popen(["sleep", "600"])
        ready()
        while not interruption.signal:
            time.sleep(0.01)
    print(child.poll(), flush=True)
    child.kill()
"""
    process = begin("-c", script(body))
    assert said(process) == "ready"
    os.killpg(process.pid, signal.SIGQUIT)
    assert process.wait(30) == 0
    assert process.stdout is not None and "None" in process.stdout.read()


def test_version_and_completion(mark: str) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "polysweep", "--version"], capture_output=True, text=True, check=True
    )
    assert answer.stdout == f"polysweep {__version__}\n"
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).output


def test_nothing_heavy_is_imported_before_the_signals_are_taken_over(mark: str) -> None:
    code = "import sys; import polysweep; print([m for m in ('typer', 'rich', 'numpy', 'pandas') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"
