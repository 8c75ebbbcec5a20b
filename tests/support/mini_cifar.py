"""A miniature CIFAR in the real on-disk format: 80 training and 24 test images of 8 classes, with checksums of its own.

As a plug-in (`tests.support.mini_cifar:cifar10`) it runs through all of the real code: torchvision's classes, checks,
cache, launch.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from torchvision.datasets import CIFAR10, CIFAR100

from polysweep.trainer.components.registry import declare
from polysweep.trainer.tasks.cifar import Cifar

LABELS = 8
PER_CLASS = 10
TEST_PER_CLASS = 3
USES = {"augmentation": "crop+flip", "label_smoothing": 0.0, "label_noise": 0.0}


def images(count: int, seed: int) -> tuple[np.ndarray, list[int]]:
    """Noisy images around one pattern per class: (n, 3072) uint8 as the files have them, and labels."""
    patterns = np.random.default_rng(1).integers(0, 256, (LABELS, 3072))
    random = np.random.default_rng(seed)
    labels = [n % LABELS for n in range(count)]
    noise = random.normal(0, 90, (count, 3072))
    return np.clip(patterns[labels] * 0.3 + 80 + noise, 0, 255).astype(np.uint8), labels


def batch(data: np.ndarray, labels: list[int], key: str) -> bytes:
    return pickle.dumps({"batch_label": "mini", key: labels, "data": data, "filenames": []}, protocol=2)


def contents(hundred: bool, *, scrambled: bool = False) -> dict[str, bytes]:
    """By name, the files of the folder."""
    key = "fine_labels" if hundred else "labels"
    data, labels = images(LABELS * PER_CLASS, 2)
    test, test_labels = images(LABELS * TEST_PER_CLASS, 3)
    if scrambled:
        test_labels = [(label * 5 + n) % LABELS for n, label in enumerate(test_labels)]
    names = [f"class {n}" for n in range(LABELS)]
    if hundred:
        meta = {"fine_label_names": names, "coarse_label_names": names}
        found = {"train": batch(data, labels, key), "meta": pickle.dumps(meta, protocol=2)}
        return {**found, "test": batch(test, test_labels, key)}
    size = len(labels) // 5
    parts = {
        f"data_batch_{n + 1}": batch(data[n * size : (n + 1) * size], labels[n * size : (n + 1) * size], key)
        for n in range(5)
    }
    meta = {"label_names": names, "num_cases_per_batch": size, "num_vis": 3072}
    return {**parts, "test_batch": batch(test, test_labels, key), "batches.meta": pickle.dumps(meta, protocol=2)}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def archive(folder: str, files: dict[str, bytes]) -> bytes:
    """A .tar.gz whose bytes depend on the files alone."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def miniature(base: type[CIFAR10], name: str, files: dict[str, bytes]) -> type[CIFAR10]:
    """The torchvision class with the checksums of these files."""
    folder = f"{name}-{base.base_folder}"
    packed = archive(folder, files)
    fields: dict[str, Any] = {
        "base_folder": folder,
        "filename": f"{name}-{base.filename}",
        "url": f"http://127.0.0.1:9/{name}-{base.filename}",  # nobody listens there
        "tgz_md5": md5(packed),
        "train_list": [[file, md5(files[file])] for file, _ in base.train_list],
        "test_list": [[file, md5(files[file])] for file, _ in base.test_list],
        "meta": {**base.meta, "md5": md5(files[base.meta["filename"]])},
        "packed": packed,
    }
    return type(f"{name.title()}{base.__name__}", (base,), fields)


Mini10 = miniature(CIFAR10, "mini", contents(False))
Mini100 = miniature(CIFAR100, "mini", contents(True))
Scrambled10 = miniature(CIFAR10, "scrambled", contents(False, scrambled=True))

declared = declare(uses=USES, train_size=LABELS * PER_CLASS, smallest_class=PER_CLASS, input_shape=(3, 32, 32))


class MiniCifar(Cifar):
    """Declares itself as a plug-in does."""

    polysweep = declared(lambda: None).polysweep  # type: ignore[attr-defined]


cifar10 = MiniCifar("mini10", "tests.support.mini_cifar:Mini10", classes=10, cutout=16)
cifar100 = MiniCifar("mini100", "tests.support.mini_cifar:Mini100", classes=100, cutout=8)
scrambled10 = MiniCifar("scrambled10", "tests.support.mini_cifar:Scrambled10", classes=10, cutout=16)


def write_archives(data: Path) -> None:
    """Put the three archives into a data folder, as a user who fetched them by hand would."""
    data.mkdir(parents=True, exist_ok=True)
    for dataset in (Mini10, Mini100, Scrambled10):
        (data / dataset.filename).write_bytes(dataset.packed)
