"""A Ray of the launch's own is started with a mark and ended at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import uuid
from pathlib import Path

import pytest

from polysweep.sweeps.scheduling import local_ray, reaper
from polysweep.sweeps.scheduling.local_ray import _ended_at_once, _marked, _watch_processes
from tests.support.ending import running


def test_the_names_of_rays_that_are_not_public_are_there() -> None:
    """`local_ray` makes Ray kill what it would ask to end; without this method it would wait a second for each."""
    from ray._private import services

    assert issubclass(services.ConsolePopen, subprocess.Popen)
    assert "process.terminate()" in (Path(services.__file__).parent / "node.py").read_text()


def test_what_is_started_beside_ray_has_no_mark_and_is_ended_as_usual() -> None:
    from ray._private.services import ConsolePopen

    with _marked("0a"):
        assert (os.environ[reaper.MARK], os.environ["SPT_NOENV"]) == ("0a", "1")
    assert reaper.MARK not in os.environ and "SPT_NOENV" not in os.environ
    terminate = ConsolePopen.terminate
    with pytest.raises(ZeroDivisionError), _ended_at_once():
        assert ConsolePopen.terminate is ConsolePopen.kill
        _ = 1 / 0
    assert ConsolePopen.terminate is terminate


def test_a_ray_that_a_launch_has_ended_is_not_reported_as_dead() -> None:
    has_ended = threading.Event()
    has_ended.set()
    reasons: list[str] = []
    _watch_processes(uuid.uuid4().hex, has_ended, reasons.append)
    assert reasons == []


@pytest.mark.parametrize(("failures", "starts"), [(2, 3), (3, 3)])
def test_ray_is_started_again_if_its_processes_were_too_slow(
    failures: int, starts: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each time without what the time before has left behind; after three times the error is Ray's."""
    mark, left = uuid.uuid4().hex, []

    def init(**_: object) -> None:
        assert all(process.wait(10) == -signal.SIGKILL for process in left)
        left.append(running({reaper.MARK: mark}))
        if len(left) <= failures:
            raise Exception("The current node timed out during startup. This could happen because ...")

    monkeypatch.setattr(local_ray.ray, "init", init)
    try:
        with (
            contextlib.nullcontext()
            if failures < starts
            else pytest.raises(Exception, match="timed out during startup")
        ):
            local_ray._start(mark, str(tmp_path), {})
        assert len(left) == starts
    finally:
        reaper.kill(reaper.marked(mark))
        for process in left:
            process.communicate()


def test_any_other_error_of_ray_is_raised_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def init(**_: object) -> None:
        raise ConnectionError("no address")

    monkeypatch.setattr(local_ray.ray, "init", init)
    with pytest.raises(ConnectionError):
        local_ray._start("none", str(tmp_path), {})
