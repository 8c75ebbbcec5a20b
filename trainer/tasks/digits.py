"""scikit-learn's bundled handwritten digits."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch

from polysweep.trainer.tasks.classification import Classification
from polysweep.trainer.tasks.images import Images, Normalisation
from polysweep.trainer.tasks.samples import hold_out, split

DIGITS_TEST_SIZE = 360


def digits(data: Path, val_fraction: float) -> Classification:  # noqa: ARG001
    """scikit-learn's bundled handwritten digits: 1,797 images, 8x8, grey values 0 to 16.

    360 images are the test set and 1,437 the training set, stratified by class, the same for every seed (drawn from
    the stream `split` of seed 0). `val_fraction` of the training set is held out the same way. Normalised by mean and
    standard deviation of the training pixels. No augmentation: a shifted digit leaves the frame and a mirrored one is
    another sign. Needs no data folder.
    """
    table = torch.from_numpy(np.loadtxt(_digits_file(), delimiter=",", dtype=np.uint8))
    pixels, labels = table[:, :-1].reshape(-1, 8, 8, 1), table[:, -1].long()
    train, test = split(torch.arange(len(labels)), labels, DIGITS_TEST_SIZE)
    train, held_out = hold_out(train, labels, val_fraction)
    seen = pixels[train].double()
    normalise = Normalisation(seen.mean().view(1), seen.std(correction=0).view(1))
    val = None if held_out is None else Images(pixels, labels, held_out)
    return Classification(Images(pixels, labels, train), val, Images(pixels, labels, test), normalise, classes=10)


def _digits_file() -> Path:
    """The data file in the installed scikit-learn, whose import alone would cost every worker a second."""
    package = importlib.util.find_spec("sklearn")
    assert package is not None and package.submodule_search_locations, "scikit-learn is a dependency"
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
