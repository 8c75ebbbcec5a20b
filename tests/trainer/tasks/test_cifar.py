"""CIFAR's files: decoded once, fetched, damaged."""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from polysweep.trainer.errors import DataError
from polysweep.trainer.tasks import cifar as cifar_module
from tests.support import mini_cifar
from tests.support.cifar_images import data as data


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_decoded_data_is_what_torchvision_reads(data: Path, name: str) -> None:
    builder, dataset = {
        "cifar10": (mini_cifar.cifar10, mini_cifar.Mini10),
        "cifar100": (mini_cifar.cifar100, mini_cifar.Mini100),
    }[name]
    task = builder(data, 0.0)
    for split, found in ((True, task.train), (False, task.test)):
        theirs = dataset(root=str(data), train=split)
        assert np.array_equal(found.images.numpy(), theirs.data)
        assert found.labels.tolist() == theirs.targets
    assert (task.classes, task.input_shape) == ({"cifar10": 10, "cifar100": 100}[name], (3, 32, 32))


def test_images_are_mapped_and_a_split_copies_none(data: Path) -> None:
    mini_cifar.cifar10.prepare(data)
    whole, split = mini_cifar.cifar10(data, 0.0), mini_cifar.cifar10(data, 0.2)
    assert split.val is not None
    assert split.train.images.data_ptr() == split.val.images.data_ptr()
    mapped = str(data / "mini10-decoded-1" / "train_images.npy")
    assert mapped in Path("/proc/self/maps").read_text(), "one copy per machine, in the page cache"
    whole.train.images[0] = 0
    assert mini_cifar.cifar10(data, 0.0).train.images[0].any(), "copy on write: nobody else sees it"


def test_decoded_data_is_loaded_without_torchvision(data: Path) -> None:
    mini_cifar.cifar10.prepare(data)
    shutil.rmtree(data / "mini-cifar-10-batches-py")
    code = (
        "import sys; from pathlib import Path; from polysweep.trainer.tasks.cifar import Cifar;"
        f"task = Cifar('mini10', 'nowhere:Nothing', 10, 16); task.prepare(Path({str(data)!r}));"
        f"assert not {{'torch', 'torchvision'}} & sys.modules.keys(); task(Path({str(data)!r}), 0.0);"
        "assert 'torchvision' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _load(data: str, barrier: object, decoded: object) -> None:
    decode = mini_cifar.MiniCifar._decode

    def counted(self: object, *arguments: object) -> None:
        decoded.put(1)  # type: ignore[attr-defined]
        decode(self, *arguments)  # type: ignore[arg-type]

    mini_cifar.MiniCifar._decode = counted  # type: ignore[assignment, method-assign]
    barrier.wait()  # type: ignore[attr-defined]
    assert len(mini_cifar.cifar10(Path(data), 0.0).train) == 80


def test_of_eight_processes_that_start_together_one_decodes(data: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier, decoded = context.Barrier(8), context.Queue()
    processes = [context.Process(target=_load, args=(str(data), barrier, decoded)) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 8
    assert decoded.get(timeout=5) == 1 and decoded.empty()


def test_data_that_is_missing_names_what_to_fetch_and_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(DataError) as raised:
        mini_cifar.cifar10.prepare(tmp_path / "none")
    message = str(raised.value)
    for part in ("mini-cifar-10-python.tar.gz", str(tmp_path / "none"), "127.0.0.1", "--data-dir", "POLYSWEEP_DATA"):
        assert part in message
    assert list((tmp_path / "none").iterdir()) == [tmp_path / "none" / "mini10-decoded-1.lock"], "nothing half done"


@pytest.fixture
def address(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serves the data folder on loopback, and the miniature is to be fetched there."""
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    handler = partial(SimpleHTTPRequestHandler, directory=str(data))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{mini_cifar.Mini10.filename}"
        monkeypatch.setattr(mini_cifar.Mini10, "url", url)
        yield data
        server.shutdown()


def test_data_is_fetched_where_there_is_a_network(address: Path, tmp_path: Path) -> None:
    task = mini_cifar.cifar10(tmp_path / "here", 0.0)
    assert torch.equal(task.train.images, mini_cifar.cifar10(address, 0.0).train.images)
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [
        "mini-cifar-10-batches-py", "mini-cifar-10-python.tar.gz", "mini10-decoded-1", "mini10-decoded-1.lock",
    ]  # fmt: skip


def test_a_download_with_the_wrong_checksum_is_refused_and_leaves_nothing(address: Path, tmp_path: Path) -> None:
    path = address / "mini-cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"http://127\.0\.0\.1:\d+/mini-cifar-10-python\.tar\.gz cannot be fetched"):
        mini_cifar.cifar10.prepare(tmp_path / "here")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["mini10-decoded-1.lock"]


def test_a_truncated_archive_is_named(data: Path) -> None:
    path = data / "mini-cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DataError, match=r"mini-cifar-10-python\.tar\.gz: damaged or truncated: \d+ bytes with MD5"):
        mini_cifar.cifar10.prepare(data)
    assert path.exists(), "it is the user's file"


@pytest.mark.parametrize("extracted", [True, False])
def test_a_data_folder_that_is_read_only_is_left_as_it_is(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extracted: bool
) -> None:
    """Root may write anywhere, so making a file fails in its place."""
    if extracted:
        mini_cifar.cifar10.prepare(data)
        shutil.rmtree(data / "mini10-decoded-1")
    before = sorted(data.rglob("*"))
    real = tempfile.TemporaryFile

    def refuse(*arguments: object, dir: Path) -> object:
        if dir == data:
            raise PermissionError(13, "Read-only file system")
        return real(*arguments, dir=dir)

    monkeypatch.setattr(cifar_module.tempfile, "TemporaryFile", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(mini_cifar.cifar10(data, 0.0).train) == 80
    assert sorted(data.rglob("*")) == before
    assert list((tmp_path / "cache").glob("polysweep-*/mini10-decoded-1"))


@pytest.mark.parametrize("what", ["damaged", "missing"])
def test_a_damaged_batch_file_is_named(data: Path, what: str) -> None:
    mini_cifar.cifar10.prepare(data)
    shutil.rmtree(data / "mini10-decoded-1")
    path = data / "mini-cifar-10-batches-py" / "data_batch_3"
    content = path.read_bytes()
    path.unlink()
    if what == "damaged":
        path.write_bytes(content[:5000] + b"x" + content[5001:])
    with pytest.raises(DataError, match=rf"data_batch_3: {'damaged' if what == 'damaged' else 'cannot be read'}"):
        mini_cifar.cifar10.prepare(data)


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "gone", "a file"])
def test_decoded_data_that_cannot_be_used_is_decoded_again(data: Path, damage: str) -> None:
    before = mini_cifar.cifar10(data, 0.0).train.images.clone()
    path = data / "mini10-decoded-1" / "train_images.npy"
    content = path.read_bytes()
    path.unlink()
    if damage in ("cut", "empty", "flipped"):
        flipped = content[:9000] + bytes([content[9000] ^ 1]) + content[9001:]
        path.write_bytes({"cut": content[:-100], "empty": b"", "flipped": flipped}[damage])
    elif damage == "a file":
        shutil.rmtree(path.parent)
        path.parent.write_text("")
    assert torch.equal(mini_cifar.cifar10(data, 0.0).train.images, before)


def test_a_path_that_is_a_file_cannot_be_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file: it is a file, expected the folder of the data sets"):
        mini_cifar.cifar10.prepare(tmp_path / "file")
