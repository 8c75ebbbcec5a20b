"""The columns of a trial's history, the same in Store and W&B. Imports no torch: analysis reads them too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

SPLITS: Final = ("train", "val", "test")
CLASSIFICATION_METRICS: Final = tuple(f"{split}/{value}" for split in SPLITS for value in ("loss", "top1", "top5"))
"""What is measured of a classification task. Accuracies are fractions of the images."""

CORRUPTIONS: Final = ("noise", "blur", "contrast", "occlusion")
SEVERITIES: Final = (1, 2, 3, 4, 5)
CORRUPTED: Final = tuple(f"{name}-{severity}" for name in CORRUPTIONS for severity in SEVERITIES)
"""The accuracies on corrupted test images: `test/noise-1` to `test/occlusion-5`."""

CALIBRATION_COLUMNS: Final = ("val/ece", "test/ece")
"""More columns, which only classification tasks have: the expected calibration error, a fraction."""

PROBLEM_METRICS: Final = (
    "suboptimality",  # f(x) - f* at the row's last x
    "suboptimality/relative",  # (f(x) - f*) / (f(x^0) - f*)
    "suboptimality/cesaro",  # f of the average of x^0 .. x^(T-1), minus f*
    "distance",  # ||x - x*||^2
    "distance/relative",  # ||x - x*||^2 / ||x^0 - x*||^2
)
"""What is measured of a convex task, over all f_i, after the row's steps."""

METRICS: Final = (*CLASSIFICATION_METRICS, *CALIBRATION_COLUMNS, *PROBLEM_METRICS)
"""What can select epochs and tuned parameters."""

HITS: Final = (1e-6, 1e-10)
"""Relative suboptimalities of which a convex task's history says when they were first reached."""

HISTORY_COLUMNS: Final = (
    "epoch",  # 1 .. T
    "step",  # counted steps behind the row
    *CLASSIFICATION_METRICS,  # train: means over the epoch's batches at x, before the update; val, test: after it
    "gamma/mean",  # step size, over the epoch's steps
    "gamma/min",
    "gamma/max",
    "gamma/cap_share",  # share of the steps at gamma_b, of momo at lr
    "gamma/zero_share",  # share of the steps at the safeguard, gamma = 0
    "grad_norm/x",
    "grad_norm/e",
    "ascent_gain",  # mean of f(e) - f(x): for USAM rho ||grad||^2 to first order, 0 without a perturbation
    "images_per_second",  # of training, evaluation not counted
    "seconds",  # wall time of the epoch, evaluation included
    "partial",  # the epoch in which the row diverged: means over its counted steps
)
"""One row per epoch; a value that was not measured is None."""

RENAMED: Final = {"sharpness": "ascent_gain"}
"""By the name that a column had in older Stores and runs, its name now."""

PROBLEM_COLUMNS: Final = (
    *PROBLEM_METRICS,
    "iterations/1e-6",  # steps until the relative suboptimality was first that small; None: not yet
    "iterations/1e-10",
    "violations/gamma",  # steps so far whose step size was below the paper's bound; None where it claims none
    "violations/descent",  # steps so far in which ||x - x*||^2 grew more than the paper allows
    "violations/lemmas",  # steps so far in which an inequality of the paper's auxiliary lemmas did not hold
)
"""More columns, which only convex tasks have; the violations only with `task_options.check`."""

TIMING_COLUMNS: Final = ("images_per_second", "seconds")
"""The only ones that differ between two runs of one trial."""


def last_epochs(epochs: int) -> int:
    """How many of a trial's last epochs say whether it is stalled: a tenth of them, rounded up."""
    return math.ceil(epochs / 10)


def is_stalled(history: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the safeguard held gamma = 0 in every step of a trial's last epochs, so that nothing moved any more."""
    tail = history[-last_epochs(len(history)) :] if history else []
    return bool(tail) and all(row.get("gamma/zero_share") == 1.0 for row in tail)


def with_current_names(row: Mapping[str, Any]) -> dict[str, Any]:
    """A history row of any age with the names that its columns have now."""
    return {RENAMED.get(name, name): value for name, value in row.items()}


def shown_number(value: float) -> str:
    """Four decimals, or three digits of a number that these would hide."""
    return f"{value:.4f}" if not value or 1e-3 <= abs(value) < 1e6 or not math.isfinite(value) else f"{value:.2e}"


def is_metric(column: str) -> bool:
    """Whether a history column is measured of the training, validation or test set, or of a convex task."""
    return column in PROBLEM_METRICS or column.partition("/")[0] in SPLITS


def is_accuracy(metric: str) -> bool:
    """Whether a metric is a fraction that tables and plots print in percent, as the calibration error too is."""
    return metric.rpartition("/")[2] in ("top1", "top5", "ece", *CORRUPTED)
