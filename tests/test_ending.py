"""However a launch ends - by a signal, a kill, its Ray, its memory or its disk - it ends in time, and all of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mini_cifar
import pytest
from conftest import ROOT, own_network, records, wait_for
from test_chaos import small_disk as small_disk
from test_launch import histories
from typer.testing import CliRunner

from sweeps import files, reaper
from sweeps.cli import app
from sweeps.files import LocalFiles, OutOfReachError, StoreError
from sweeps.interruption import SIGNALS
from sweeps.ray_errors import cause_of, is_memory, one_line_errors
from trainer import __version__, cifar
from trainer.cpus import usable_cpus
from trainer.registry import UserError

Run = Callable[..., subprocess.CompletedProcess[str]]
SpecFile = Callable[..., Path]
Begin = Callable[..., "subprocess.Popen[str]"]
MARK = "POLYSWEEP_TEST"


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What every process that descends from this test has in its environment; what is left of them is killed."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setenv("SPT_NOENV", "1")  # as for the launch's own mark
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield mark
    reaper.kill(living(mark))


def living(mark: str) -> dict[int, str]:
    """By pid, the test's processes."""
    return reaper.marked(mark, MARK)


@pytest.fixture
def begin(mark: str, tmp_path: Path) -> Iterator[Begin]:
    """Start Python as the head of a process group."""
    started: list[subprocess.Popen[str]] = []

    def begin_python(*arguments: str | Path, isolated: bool = False) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=own_network if isolated else None,
        )
        started.append(process)
        return process

    yield begin_python
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def script(body: str) -> str:
    """A program that has taken its signals over, and says so."""
    return f"""
import os, signal, subprocess, sys, threading, time
from sweeps import interruption as module
from sweeps.interruption import Interruption, shielded
interruption = Interruption()
module.REPEAT_SECONDS = 0.0
def ready():
    print("ready", flush=True)
{body}
"""


def said(process: subprocess.Popen[str]) -> str:
    """The next line of its output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_command_with_128_and_its_number(begin: Begin, number: int) -> None:
    process = begin("-c", script("interruption.install()\nready()\ntime.sleep(60)"))
    assert said(process) == "ready"
    os.kill(process.pid, number)
    assert process.wait(30) == 128 + number


def test_a_signal_whose_exception_is_lost_ends_the_command_all_the_same(begin: Begin) -> None:
    """In a destructor Python prints an exception and goes on."""
    body = """
interruption.grace = 0.2
interruption.install()
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


@pytest.mark.parametrize("in_order", [True, False])
def test_what_a_launch_leaves_behind_is_killed_also_what_does_not_hear(
    mark: str, tmp_path: Path, in_order: bool
) -> None:
    folder, own = tmp_path / "session", uuid.uuid4().hex
    folder.mkdir()
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    environment = {**os.environ, reaper.MARK: own}
    left = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, text=True, env=environment)
    assert said(left) == "up"
    command = [sys.executable, "-IS", reaper.__file__, own, folder, "0.1"]
    guard = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE)
    assert guard.stdin is not None and left.stdout is not None
    assert left.poll() is None, "not before the launch is over"
    if in_order:
        guard.stdin.write(b"\n")
    guard.stdin.close()
    assert left.wait(30) == -signal.SIGKILL
    assert guard.wait(30) == 0 and not folder.exists()
    left.stdout.close()


# whole launches

SMALL: dict[str, Any] = {"seeds": 1, "tuned": [], "variants": [{"scheduler": {"value": "polyak"}}]}
LASTING: dict[str, Any] = {**SMALL, "parameters": {
    "task": {"value": "digits"}, "model": {"value": "resnet8"}, "optimizer": {"value": "usam"}, "rho": {"value": 0.1},
    "batch_size": {"value": 256}, "epochs": {"value": 400}}}  # fmt: skip


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
        (4.5, signal.SIGINT, True),
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
    assert "Ray has died (" in said[-1] and "the same command resumes from what is stored" in said[-1]
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
from sweeps import rayenv
prepare = rayenv.prepare
def then_impatient(*arguments, **options):
    prepare(*arguments, **options)  # before Ray is imported
    import sweeps.launch
    sweeps.launch.MEMORY_SECONDS = (0.1, 0.1)
rayenv.prepare = then_impatient
from polysweep import main
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


# the parts


class Failing(LocalFiles):
    """A disk that is full, and a clock that goes on only while somebody waits."""

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root)
        self.patience, self.full, self.attempts, self.now = 10.0, True, 0, 0.0
        monkeypatch.setattr(files.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(files.time, "sleep", self._pass)

    def _pass(self, seconds: float) -> None:
        self.now += seconds

    def _write(self, path: str, content: bytes, kept: str | None) -> None:
        self.attempts += 1
        if self.full:
            raise OSError(28, "No space left on device")
        super()._write(path, content, kept)


def test_the_patience_of_an_outage_is_spent_once_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = Failing(str(tmp_path), monkeypatch)
    for path in ("a", "b", "c"):
        with pytest.raises(OutOfReachError, match=f"{path}: cannot be written: No space left on device"):
            place.write(path, b"1")
    assert place.now <= 10.0 and place.attempts > 4, "the first call has waited"
    assert len(caplog.records) == 1, "and said so"
    place.full = False
    place.write("a", b"2")
    place.full = True
    before = place.now
    with pytest.raises(OutOfReachError):
        place.write("a", b"3")
    assert 5.0 < place.now - before <= 10.0, "another outage has a patience of its own"
    assert place.read("a") == b"2" and len(caplog.records) == 2


def test_what_waiting_does_not_mend_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Failing(str(tmp_path), monkeypatch)
    monkeypatch.setattr(place, "_write", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(StoreError, match="Permission denied") as refused:
        place.write("a", b"1")
    assert place.now == 0.0 and not isinstance(refused.value, OutOfReachError), "it need not be the whole Store"


def test_a_worker_that_has_waited_for_its_store_says_so_and_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from sweeps.interruption import Interruption
    from sweeps.tuning import StackTrainable, Watcher

    class Full:
        is_over = False

        def advance(self) -> None:
            raise OutOfReachError("store/x: cannot be written: No space left on device")

    worker = StackTrainable.__new__(StackTrainable)
    worker._run, worker._interruption = Full(), Interruption()  # type: ignore[assignment]
    worker._jobs = [type("Job", (), {"early": False})()]  # type: ignore[list-item]
    result = worker.step()
    assert result["done"] and result["rows"] == []
    interruption = Interruption()
    watcher = Watcher(type("Quiet", (), {"update": lambda *_: None})(), interruption, None)  # type: ignore[arg-type]
    watcher.on_trial_result(0, [], None, result)  # type: ignore[arg-type]
    assert watcher.stop_all() and interruption.lost.startswith("store/x: cannot be written: No space left on device; ")


def test_rays_errors_are_one_line_with_their_cause_first() -> None:
    from ray.exceptions import OutOfMemoryError, RayActorError, RaySystemError

    text = (
        "2 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 127.0.0.1, ID: 02de) "
        "was 5.34GB used / 23.54GB limit (0.226838)\nOOM kill reason: ...\n" + "Refer to the documentation. " * 50
    )
    memory = OutOfMemoryError(text)
    wrapped = RuntimeError(f"Caught unexpected exception: {text}")
    wrapped.__cause__ = memory
    assert is_memory(memory) and is_memory(wrapped)
    assert cause_of(wrapped) == "a machine is short of memory (5.34GB used / 23.54GB)"
    assert not is_memory(RuntimeError("CUDA out of memory")), "that is the device's, and the worker's to mend"
    for error, words in (
        (wrapped, "Ray: a machine is short of memory (5.34GB used / 23.54GB); the same command resumes"),
        (RaySystemError("the raylet\nis gone"), "Ray: System error: the raylet; the same command resumes"),
        (RayActorError(), "Ray: a worker process died; the same command resumes"),
    ):
        with pytest.raises(UserError) as told, one_line_errors():
            raise error
        assert str(told.value).startswith(words) and "\n" not in str(told.value) and len(str(told.value)) < 400


def test_what_tune_says_of_a_worker_is_cut_to_its_cause() -> None:
    """Tune numbers failures, and has a text where it cannot unpickle an error."""
    traceback = (
        "Failure # 1 (occurred at 1)\nray::StackTrainable.train()\n  File x\nRuntimeError: can't allocate memory\n"
    )
    killed = (
        "Failure # 2\nThe actor died.\nWorker unexpectedly exits with a connection error code 2. End of file. "
        + "x" * 999
    )
    assert cause_of(RuntimeError(traceback)) == "RuntimeError: can't allocate memory"
    assert cause_of(RuntimeError(killed)).startswith("a worker process was killed, by somebody or by the kernel")
    assert len(cause_of(RuntimeError("x" * 1287))) < 310


def test_an_error_that_is_not_rays_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError), one_line_errors():
        _ = 1 / 0
    with pytest.raises(UserError, match="cannot be written"), one_line_errors():
        try:
            raise StoreError("store: cannot be written")
        except StoreError as error:
            raise RuntimeError("Tune has wrapped it") from error


def test_the_names_of_rays_that_are_not_public_are_there() -> None:
    """`local_ray` makes Ray kill what it would ask to end; without this method it would wait a second for each."""
    from ray._private import services

    assert issubclass(services.ConsolePopen, subprocess.Popen)
    assert "process.terminate()" in (Path(services.__file__).parent / "node.py").read_text()


@pytest.mark.parametrize(
    ("lines", "quotas", "cores"),
    [
        (["0::/a/b"], {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "max 100000\n"}, 1),
        (["0::/a/b"], {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1),
        (["0::/host/path"], {"cpu.max": "50000 100000\n"}, 1),  # inside a container
        (["4:memory:/m", "1:cpu,cpuacct:/c"], {"cpu,cpuacct/c/cpu.cfs_quota_us": "100000\n",
                                               "cpu,cpuacct/c/cpu.cfs_period_us": "100000\n"}, 1),
        (["1:cpu:/c"], {"cpu/c/cpu.cfs_quota_us": "-1\n", "cpu/c/cpu.cfs_period_us": "100000\n"}, None),
        (["0::/"], {"cpu.max": "6400000 100000\n"}, None),
        (["0::/"], {"cpu.max": "nonsense\n"}, None),
        (["0::/"], {}, None),
    ],
)  # fmt: skip
def test_the_quota_of_a_control_group_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], quotas: dict[str, str], cores: int | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "cgroup").write_text("\n".join(lines) + "\n")
    for name, content in quotas.items():
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(content)
    assert usable_cpus(tmp_path / "cgroup", tmp_path / "sys") == (cores or 8)


def test_cores_are_known_where_there_is_neither_affinity_nor_a_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "process_cpu_count", lambda: 6, raising=False)
    assert usable_cpus(tmp_path / "none", tmp_path / "none") == 6


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


def test_what_killed_launches_leave_in_the_store_is_removed_by_the_next_one(tmp_path: Path) -> None:
    from sweeps.process import Process
    from sweeps.running import Registration
    from sweeps.store import Store

    store = Store(str(tmp_path))
    dead = {"process": {**vars(Process.this()), "started": 1}, "since": 0.0, "beats": 1, "released": False}
    store.files.write("sweeps/small/launch-0a.json", json.dumps(dead).encode())
    for name in ("stop-0a", "stop-0b"):
        store.files.write(f"sweeps/small/{name}", b"")
    with Registration(store, "small", lambda: None, lambda _: None) as alive:
        alive.ask_to_stop()
        with Registration(store, "small", lambda: None, lambda _: None) as other:
            names = {f"launch-{alive.id}.json", f"stop-{alive.id}", f"launch-{other.id}.json"}
            assert set(store.files.names("sweeps/small")) == names
    assert not store.files.names("sweeps/small")


def test_what_a_killed_process_was_decoding_is_removed_once_nobody_decodes(tmp_path: Path) -> None:
    mini_cifar.write_archives(tmp_path)
    mini = mini_cifar.cifar10
    mini.prepare(tmp_path)
    leftover, other = tmp_path / ".mini10-abc", tmp_path / ".mini100-abc"
    for folder in (leftover, other):
        folder.mkdir()
        (folder / "train_images.npy").write_bytes(b"half")
    with cifar.filelock.FileLock(tmp_path / "mini10-decoded-1.lock"):
        mini.prepare(tmp_path)
        assert leftover.exists(), "somebody is decoding"
    mini.prepare(tmp_path)
    assert not leftover.exists() and other.exists()
