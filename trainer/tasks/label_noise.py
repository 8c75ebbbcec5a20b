"""Symmetric label noise of a training set."""

from __future__ import annotations

import torch
from torch import Tensor

from polysweep.trainer.errors import ConfigError
from polysweep.trainer.streams import stream


def noisy(labels: Tensor, classes: int, share: float, seed: int) -> Tensor:
    """`round(share * n)` of the labels (n,) int64 are another class, drawn uniformly from the `classes - 1` others.

    So `share` is the share of wrong labels; papers that draw from all classes have fewer. Which ones follows from the
    stream `label-noise` of the trial's seed: the same in every epoch and on every device, and those of a smaller share
    are among those of a larger one, with the same labels. Raises `ConfigError` if there is no other class.
    """
    count = round(share * len(labels))
    if count and classes < 2:
        raise ConfigError("label_noise", f"{share}: the task has {classes} class, and a label no other one")
    draws = stream(seed, "label-noise")
    wrong = torch.randperm(len(labels), generator=draws)[:count].to(labels.device)
    shift = torch.randint(1, max(classes, 2), (len(labels),), generator=draws)[:count].to(labels.device)
    return labels.index_copy(0, wrong, (labels[wrong] + shift) % classes)
