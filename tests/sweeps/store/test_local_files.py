"""Files on a local file system: whole or not at all, also without hard links, and plain files only."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.store.files import NotOursError, StoreError, UnreadableError
from polysweep.sweeps.store.local_files import check_mounted, users_apart
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.stack_run import StackRun
from tests.support.claimed import ID, RECORD, contents, job, write_all
from tests.support.inprocess import polysweep
from tests.support.made import SPEC, by_lr, sweep


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *(("record.json", make) for make in (_fifo, _loop, _device, Path.mkdir, _terabyte)),
        ("history.parquet", _fifo), ("history.parquet", _loop), ("claim-1.json", _fifo),
    ],
)  # fmt: skip
def test_what_is_no_plain_file_is_one_damaged_trial(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    runs = sweep(tmp_path, by_lr).runs
    victim = runs["trial_id"].iloc[0]
    path = tmp_path / "trials" / victim / name
    path.unlink(missing_ok=True)
    make(path)
    store = Store(str(tmp_path))
    with pytest.raises(UnreadableError, match=f"{name}: cannot be read: "):
        store.files.read(f"trials/{victim}/{name}")
    code, out, err = polysweep("status", "made", "--store", tmp_path, "--json")
    outcomes = {one["trial_id"]: one["outcome"] for one in json.loads(out)["trials"]}
    assert code == 0 and list(outcomes.values()).count("finished") >= len(outcomes) - 1
    code, out, err = polysweep("table", "made", "--store", tmp_path, "--cache", tmp_path / "cache")
    assert code == 0 and "polyak" in out
    if name != "claim-1.json":  # of a trial that has ended nobody asks who ran it
        assert f"{victim} counts as failed: {path}: cannot be read: " in err


def test_a_file_in_the_place_of_a_trials_folder_is_that_trial_only(tmp_path: Path) -> None:
    victim = sweep(tmp_path, by_lr).runs["trial_id"].iloc[0]
    for path in (tmp_path / "trials" / victim).iterdir():
        path.unlink()
    (tmp_path / "trials" / victim).rmdir()
    (tmp_path / "trials" / victim).write_bytes(b"")
    code, out, _ = polysweep("status", "made", "--store", tmp_path)
    assert code == 0 and f"failed: {victim}: " in out and "Not a directory" in out


def test_locally_the_storage_refuses_before_the_successor_has_written_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the middle of a write: the data is on the disk, the rename is yet to come."""
    store = Store(str(tmp_path))
    superseded = store.claim(ID)
    assert superseded is not None
    write_all(store, superseded, 1)
    before = contents(store)
    real, taken = os.fsync, []

    def overtaken(file: int) -> None:
        real(file)
        if not taken:
            taken.append(True)
            taken.append(Store(str(tmp_path)).claim(ID, supersedes=1))

    monkeypatch.setattr(os, "fsync", overtaken)
    with pytest.raises(NotOursError):
        store.write_record(ID, {**RECORD, "epoch": 7}, superseded.fence)
    assert taken[1] is not None and contents(store) == before
    assert [name for name in store.files.names(f"trials/{ID}") if name.startswith(".")] == [
        taken[1].fence.path.rpartition("/")[2]
    ], "nothing of the superseded writer stays"


@pytest.fixture(params=[errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def no_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_links")
def test_a_store_without_hard_links_works(tmp_path: Path) -> None:
    store = Store(str(tmp_path), patience=3600)
    claim = store.claim(ID)
    assert claim is not None and Store(str(tmp_path)).claim(ID) is None
    write_all(store, claim, 1)
    write_all(store, claim, 2)
    assert "checkpoint-before.pt" in store.files.names(f"trials/{ID}")
    run = StackRun(job(str(tmp_path / "other"), 2))
    while run.advance() is not None and not run.is_over:
        pass
    run.close()
    other = Store(str(tmp_path / "other"))
    assert {other.state(trial_id).state for trial_id in other.files.names("trials")} == {"finished"}


@pytest.mark.usefixtures("no_links")
def test_without_links_a_file_whose_content_cannot_be_written_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, real, calls = Store(str(tmp_path)), os.fsync, []

    def full(file: int) -> None:
        calls.append(file)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        store.files.create("a/b", b"content")
    assert store.files.names("a") == []
    assert store.files.create("a/b", b"content") and not store.files.create("a/b", b"other")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    store.files.write("a/b", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="a/b: cannot be written: No space"):
        store.files.write("a/b", b"new")
    assert store.files.read("a/b") == b"old"
    assert store.files.names("a") == ["b"]


@pytest.fixture
def in_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "image.json").write_text("{}")
    monkeypatch.setenv("POLYSWEEP_IMAGE_INFO", str(tmp_path / "image.json"))


@pytest.mark.parametrize("command", [("launch", "spec.yaml"), ("sync", "made")])
def test_in_an_image_a_store_that_is_no_mount_is_refused(
    tmp_path: Path, in_an_image: None, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == "/")
    (tmp_path / "spec.yaml").write_text(json.dumps(SPEC))
    code, _, err = polysweep(*command, "--store", tmp_path / "store")
    assert code == 2 and len(err.splitlines()) == 1, err
    assert f"store '{tmp_path}/store' is a folder of the container and would be lost with it" in err
    assert not (tmp_path / "store").exists()


def test_in_an_image_what_is_mounted_there_or_above_is_a_store(
    tmp_path: Path, in_an_image: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "données de moi"
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) in (store, Path("/")))
    (tmp_path / "link").symlink_to(store)
    for root in (store, store / "a" / "b", tmp_path / "link"):
        check_mounted(str(root))
    for root in (tmp_path, tmp_path / "store", f"{store} 2"):
        with pytest.raises(StoreError, match="is a folder of the container"):
            check_mounted(str(root))


def test_a_store_of_another_user_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so writing fails in its place."""
    store = Store(str(tmp_path / "store"))
    assert users_apart(store.root) == ""
    tmp_path.chmod(0o750)

    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(store.files, "_write", refuse)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StoreError) as raised:
        store.check_writable()
    user, group = os.geteuid(), os.getegid()
    assert str(raised.value).endswith(
        f"Permission denied; this process is user {user} of group {group}, {tmp_path} belongs to user {user} of group "
        f"{group} (mode 750)"
    )
