"""CIFAR-10 and CIFAR-100 from their standard files, decoded once per machine and memory-mapped."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import filelock
import numpy as np
from numpy.typing import NDArray

from polysweep.trainer.components.component import load
from polysweep.trainer.errors import DataError
from polysweep.trainer.tasks.cifar_files import CifarFiles, all_files, download, extract, md5_of, read_batches

if TYPE_CHECKING:
    from polysweep.trainer.tasks.classification import Classification

CACHE_FORMAT: Final = 1
CHECKSUMS: Final = "crc32.json"
UNUSABLE: Final = (OSError, ValueError, EOFError, KeyError, TypeError)
PATIENCE_SECONDS: Final = 5.0
ARRAYS: Final = ("train_images", "train_labels", "test_images", "test_labels")
LOCK_SECONDS: Final = 1800.0  # a slow download is waited for
MEAN: Final = (125.3 / 255, 123.0 / 255, 113.9 / 255)
STD: Final = (63.0 / 255, 62.1 / 255, 66.7 / 255)
"""Per channel, of pixels in [0, 1]: the constants of DeVries and Taylor 2017, for both data sets."""


@dataclass(frozen=True)
class Cifar:
    """A data set of the CIFAR format; calling it builds the task.

    `dataset` is the import path of a class with files, checksums and address: `CifarFiles`.
    """

    name: str
    dataset: str
    classes: int
    cutout: int  # side of the square, DeVries and Taylor 2017

    def __call__(self, data: Path, val_fraction: float) -> Classification:
        """The task, its images memory-mapped: one copy per machine.

        Normalised by the constants `MEAN` and `STD`. `val_fraction` of the training set is held out, stratified.

        Raises `DataError` if the data is missing or damaged.
        """
        import torch

        from polysweep.trainer.tasks.classification import Classification
        from polysweep.trainer.tasks.images import Images, Normalisation
        from polysweep.trainer.tasks.samples import hold_out

        train_images, train_labels, test_images, test_labels = map(torch.from_numpy, self._arrays(data))
        rows, held_out = hold_out(torch.arange(len(train_labels)), train_labels, val_fraction)
        return Classification(
            Images(train_images, train_labels, rows if val_fraction else None),
            None if held_out is None else Images(train_images, train_labels, held_out),
            Images(test_images, test_labels),
            Normalisation(torch.tensor(MEAN, dtype=torch.float64), torch.tensor(STD, dtype=torch.float64), scale=255.0),
            self.classes,
            self.cutout,
        )

    def prepare(self, data: Path) -> None:
        """Decode the data, or download it, where that has not been done yet. Imports torch only for that.

        Raises `DataError` if the data is missing or damaged.
        """
        self._arrays(data)
        self._remove_leftovers(_writable(data))

    def _remove_leftovers(self, folder: Path) -> None:
        """Remove what killed processes were decoding; whoever decodes holds the lock, and then nothing is removed."""
        leftovers = list(folder.glob(f".{self.name}-*"))
        if not leftovers:
            return
        with suppress(filelock.Timeout, OSError), self._lock(folder).acquire(blocking=False):
            for path in leftovers:
                shutil.rmtree(path, ignore_errors=True)

    def _cache(self, folder: Path) -> Path:
        return folder / f"{self.name}-decoded-{CACHE_FORMAT}"

    def _lock(self, folder: Path) -> filelock.BaseFileLock:
        """Held by whoever writes temporary folders beside the decoded arrays."""
        return filelock.FileLock(self._cache(folder).with_suffix(".lock"))

    def _arrays(self, data: Path) -> list[NDArray[Any]]:
        """The decoded arrays: images (N, 32, 32, 3) uint8 and labels (N,) int64, of training and test."""
        cache = self._cache(_writable(data))
        with suppress(*UNUSABLE):
            return _map(cache)
        lock = self._lock(cache.parent)
        try:
            try:
                held = lock.acquire(timeout=PATIENCE_SECONDS)
            except filelock.Timeout:
                print(f"{self.name}: waiting for another process that decodes it to {cache}", file=sys.stderr)
                held = lock.acquire(timeout=LOCK_SECONDS)
            with held:
                with suppress(*UNUSABLE):
                    return _map(cache)  # another process was faster
                self._decode(data, cache)
                return _map(cache)
        except filelock.Timeout:
            raise DataError(
                f"{cache.with_suffix('.lock')}: another process has held it for {LOCK_SECONDS:.0f} s"
            ) from None
        except (OSError, tarfile.TarError) as error:
            raise DataError(f"{self.name}: cannot be decoded from {data} to {cache}: {error}") from None

    def _decode(self, data: Path, cache: Path) -> None:
        dataset: CifarFiles = load(self.dataset)
        source = self._extracted(dataset, [data, cache.parent]) / dataset.base_folder
        for name, md5 in all_files(dataset):
            remedy = f"delete {source} and extract {dataset.filename} again, or fetch {dataset.url}"
            _check(source / name, md5, remedy)
        folder = Path(tempfile.mkdtemp(dir=cache.parent, prefix=f".{self.name}-"))
        try:
            for split, files in (("train", dataset.train_list), ("test", dataset.test_list)):
                images, labels = read_batches(source / name for name, _ in files)
                _save(folder / f"{split}_images.npy", images)
                _save(folder / f"{split}_labels.npy", labels)
            sums = {name: zlib.crc32(np.load(folder / f"{name}.npy").data) for name in ARRAYS}
            (folder / CHECKSUMS).write_text(json.dumps(sums))
            folder.chmod(0o755)  # others may share the data folder
            if cache.is_dir():
                shutil.rmtree(cache)  # it could not be used
            else:
                cache.unlink(missing_ok=True)
            folder.rename(cache)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _extracted(self, dataset: CifarFiles, roots: Sequence[Path]) -> Path:
        """The root that has the extracted files; if neither has, the last one gets them from the archive.

        The first root is the data folder, the last one can be written. Without an archive in either it is downloaded.
        """
        for root in roots:
            if (root / dataset.base_folder).exists():
                return root
        archives = [root / dataset.filename for root in roots]
        archive = next((path for path in archives if path.exists()), archives[-1])
        if not archive.exists():
            self._download(dataset, archive, roots[0])
        _check(archive, dataset.tgz_md5, f"delete it and fetch {dataset.url} again")
        self._extract(dataset, archive, roots[-1])
        return roots[-1]

    def _download(self, dataset: CifarFiles, archive: Path, data: Path) -> None:
        try:
            with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{self.name}-") as folder:
                download(dataset, Path(folder, dataset.filename))
                Path(folder, dataset.filename).rename(archive)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise DataError(
                f"{self.name}: neither {dataset.base_folder}/ nor {dataset.filename} is in {data}, and {dataset.url} "
                f"cannot be fetched ({reason}). Put that file there, or name the folder that has it with --data-dir, "
                "POLYSWEEP_DATA or launch.data_dir"
            ) from None

    def _extract(self, dataset: CifarFiles, archive: Path, root: Path) -> None:
        with tempfile.TemporaryDirectory(dir=root, prefix=f".{self.name}-") as temporary:
            extract(dataset, archive, Path(temporary, dataset.base_folder))
            Path(temporary, dataset.base_folder).rename(root / dataset.base_folder)


def _map(cache: Path) -> list[NDArray[Any]]:
    """Copy-on-write maps: read-only pages, shared by all processes, that torch takes without a warning.

    Raises one of `UNUSABLE` where they are not what was decoded.
    """
    arrays = [np.load(cache / f"{name}.npy", mmap_mode="c") for name in ARRAYS]
    sums = json.loads((cache / CHECKSUMS).read_text())
    for name, array in zip(ARRAYS, arrays, strict=True):
        if zlib.crc32(array.data) != sums[name]:
            raise ValueError(f"{name}: its CRC-32 is not that of the array that was decoded")
    return arrays


def _save(path: Path, array: NDArray[Any]) -> None:
    with path.open("wb") as file:
        np.save(file, array)
        file.flush()
        os.fsync(file.fileno())  # before the folder gets its name: what has that name is whole


def _check(path: Path, md5: str, remedy: str) -> None:
    """Raise `DataError` if the file is missing or its MD5 is another."""
    try:
        digest = md5_of(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}; {remedy}") from None
    if digest != md5:
        size = path.stat().st_size
        raise DataError(f"{path}: damaged or truncated: {size} bytes with MD5 {digest}, expected {md5}; {remedy}")


def _writable(data: Path) -> Path:
    """Where decoded arrays are kept: the data folder, or the user's cache where that one is read-only."""
    if data.exists() and not data.is_dir():
        raise DataError(f"{data}: it is a file, expected the folder of the data sets")
    with suppress(DataError, OSError), tempfile.TemporaryFile(dir=_folder(data)):
        return data
    key = hashlib.sha256(str(data.absolute()).encode()).hexdigest()[:8]
    return _folder(Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / f"polysweep-{key}")


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be a folder for data: {error.strerror or error}") from None
    return path


CIFAR10: Final = Cifar("cifar10", "polysweep.trainer.tasks.cifar_files:Cifar10Files", classes=10, cutout=16)
CIFAR100: Final = Cifar("cifar100", "polysweep.trainer.tasks.cifar_files:Cifar100Files", classes=100, cutout=8)
