"""CIFAR's names, checksums and batches, against torchvision's classes and as Python 2 wrote them."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, CIFAR100

from polysweep.trainer.tasks.cifar_files import Cifar10Files, Cifar100Files, CifarFiles, all_files, read_batches


@pytest.mark.parametrize(("ours", "theirs"), [(Cifar10Files, CIFAR10), (Cifar100Files, CIFAR100)])
def test_names_checksums_and_addresses_are_torchvisions(ours: CifarFiles, theirs: CifarFiles) -> None:
    assert all_files(ours) == all_files(theirs)
    for name in ("base_folder", "filename", "url", "tgz_md5"):
        assert getattr(ours, name) == getattr(theirs, name)


def as_python_2_wrote_it(images: np.ndarray, labels: list[int]) -> bytes:
    """A batch as the published files have it: strings of bytes, and NumPy's names of 2009."""
    shape = struct.pack("<B", len(images)) + b"M" + struct.pack("<H", images.shape[1])
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K" + shape + b"\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
    )
    content = array + struct.pack("<I", images.nbytes) + images.tobytes() + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + content + b"U\x06labels" + listed + b"u."


def test_batches_of_python_2_are_read_in_order(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3072), dtype=np.uint8)
    (tmp_path / "a").write_bytes(as_python_2_wrote_it(pixels[:2], [7, 1]))
    (tmp_path / "b").write_bytes(as_python_2_wrote_it(pixels[2:], [0, 9, 4]))
    images, labels = read_batches([tmp_path / "a", tmp_path / "b"])
    assert (images.dtype, labels.dtype, labels.tolist()) == (np.uint8, np.int64, [7, 1, 0, 9, 4])
    assert images.shape == (5, 32, 32, 3)
    assert np.array_equal(images[3, 4, 5], pixels[3].reshape(3, 32, 32)[:, 4, 5]), "the last axis is the color"


class Calls:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("called",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            pickle.dumps({"data": Calls()}, protocol=2),
            r"batch: it is not .* images: it calls posix\.mkdir",
        ),
        (pickle.dumps({"labels": [1]}), "batch: it is not a file of CIFAR images: 'data'"),
        (pickle.dumps({"data": np.zeros((1, 7), np.uint8), "labels": [1]}), "cannot reshape array of size 7"),
        (pickle.dumps([1]), "it is not a file of CIFAR images"),
        (pickle.dumps({"data": 1})[:-3], "it is not a file of CIFAR images"),
        (b"", "it is not a file of CIFAR images: Ran out of input"),
    ],
)
def test_a_file_that_is_no_batch_is_named_and_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(OSError, match=message):
        read_batches([tmp_path / "batch"])
    assert not (tmp_path / "called").exists()
