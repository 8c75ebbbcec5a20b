"""The columns of a trial's history, the same in Store and W&B. Imports no torch: analysis reads them too."""

from __future__ import annotations

from typing import Final

SPLITS: Final = ("train", "val", "test")
METRICS: Final = tuple(f"{split}/{value}" for split in SPLITS for value in ("loss", "top1", "top5"))
"""What can select epochs and tuned parameters. Accuracies are fractions of the images."""

HISTORY_COLUMNS: Final = (
    "epoch",  # 1 .. T
    "step",  # counted steps behind the row
    *METRICS,  # train: means over the epoch's mini-batches at x, before the update; val, test: after the epoch
    "gamma/mean",  # step size, over the epoch's steps
    "gamma/min",
    "gamma/max",
    "gamma/cap_share",  # share of the steps at gamma_b
    "gamma/zero_share",  # share of the steps at the safeguard, gamma = 0
    "grad_norm/x",
    "grad_norm/e",
    "sharpness",  # mean of f(e) - f(x)
    "images_per_second",  # of training, evaluation not counted
    "seconds",  # wall time of the epoch, evaluation included
    "partial",  # the epoch in which the row diverged: means over its counted steps
)
"""One row per epoch; a value that was not measured is None."""

TIMING_COLUMNS: Final = ("images_per_second", "seconds")
"""The only ones that differ between two runs of one trial."""


def is_accuracy(metric: str) -> bool:
    """Whether a metric is a fraction that tables and plots print in percent."""
    return metric.rpartition("/")[2] in ("top1", "top5")
