"""CIFAR's files: their names and checksums, an archive's way to them, and the arrays in them."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import sys
import tarfile
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

NETWORK_SECONDS: Final = 30.0  # without a byte: no network


class CifarFiles(Protocol):
    """Where a data set comes from, by the names of torchvision's classes, so that one of those does as well."""

    base_folder: str  # of the extracted files
    filename: str  # of the archive
    url: str
    tgz_md5: str
    train_list: Sequence[Sequence[str]]  # name and MD5 of each
    test_list: Sequence[Sequence[str]]
    meta: dict[str, str]  # filename and md5


class Cifar10Files:
    """CIFAR-10, Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html."""

    base_folder = "cifar-10-batches-py"
    filename = "cifar-10-python.tar.gz"
    url = f"https://www.cs.toronto.edu/~kriz/{filename}"
    tgz_md5 = "c58f30108f718f92721af3b95e74349a"
    train_list = (
        ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
        ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        ("data_batch_4", "634d18415352ddfa80567beed471001a"),
        ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    )
    test_list = (("test_batch", "40351d587109b95175f43aff81a1287e"),)
    meta: Final = {"filename": "batches.meta", "md5": "5ff9c542aee3614f3951f8cda6e48888"}


class Cifar100Files:
    """CIFAR-100, of the same page."""

    base_folder = "cifar-100-python"
    filename = "cifar-100-python.tar.gz"
    url = f"https://www.cs.toronto.edu/~kriz/{filename}"
    tgz_md5 = "eb9058c3a382ffc7106e4002c42a8d85"
    train_list = (("train", "16019d7e3df5f24257cddd939b257f8d"),)
    test_list = (("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),)
    meta: Final = {"filename": "meta", "md5": "7973b15100ade9c7d40fb424638fde48"}


def all_files(dataset: CifarFiles) -> list[tuple[str, str]]:
    """Name and MD5 of each file in the data set's folder."""
    listed = [(name, md5) for name, md5 in (*dataset.train_list, *dataset.test_list)]
    return [*listed, (dataset.meta["filename"], dataset.meta["md5"])]


class _ArrayUnpickler(pickle.Unpickler):
    """Makes arrays, and what Python has literals for; a file that asks for any other call is refused."""

    _ALLOWED: Final = {
        ("multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # wherever this version of NumPy has it
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): str.encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        """What a file may call. Raises `UnpicklingError` for anything else."""
        try:
            return self._ALLOWED[module.removeprefix("numpy.core.").removeprefix("numpy._core."), name]
        except KeyError:
            raise pickle.UnpicklingError(f"it calls {module}.{name}, which no CIFAR file does") from None


def read_batches(paths: Iterable[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 32, 32, 3) and labels (N,) of these files, in their order. Raises `OSError` if one cannot be read."""
    images: list[NDArray[np.uint8]] = []
    labels: list[int] = []
    for path in paths:
        try:
            with path.open("rb") as file:
                batch = _ArrayUnpickler(file, encoding="latin1").load()
            images.append(batch["data"].reshape(-1, 3, 32, 32))
            labels.extend(batch["labels"] if "labels" in batch else batch["fine_labels"])
        except (pickle.UnpicklingError, AttributeError, EOFError, LookupError, TypeError, ValueError) as error:
            raise OSError(f"{path}: it is not a file of CIFAR images: {error}") from None
    return np.concatenate(images).transpose(0, 2, 3, 1), np.asarray(labels, dtype=np.int64)


def md5_of(path: Path) -> str:
    """The MD5 in hex digits, by which CIFAR's files are known."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def download(dataset: CifarFiles, path: Path) -> None:
    """Fetch the archive. Raises `OSError` or `HTTPException` where it cannot be fetched or is another file."""
    request = urllib.request.Request(dataset.url, headers={"User-Agent": "polysweep"})
    with urllib.request.urlopen(request, timeout=NETWORK_SECONDS) as answer, path.open("wb") as file:
        print(f"fetching {dataset.url}", file=sys.stderr)
        shutil.copyfileobj(answer, file)
    if (digest := md5_of(path)) != dataset.tgz_md5:
        raise OSError(f"what came has the MD5 {digest}, expected {dataset.tgz_md5}")


def extract(dataset: CifarFiles, archive: Path, folder: Path) -> None:
    """Write the data set's files, and nothing else of the archive, whose MD5 is right, to `folder`, which is made."""
    folder.mkdir()
    with tarfile.open(archive) as tar:
        for name, _ in all_files(dataset):
            member = tar.extractfile(f"{dataset.base_folder}/{name}")
            assert member is not None, "it is a file in the archive"
            with member, (folder / name).open("wb") as file:
                shutil.copyfileobj(member, file)
