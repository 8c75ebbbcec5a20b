"""Samples that stay on the device, and their split into training, validation and test: the same for every seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from polysweep.trainer.errors import ConfigError
from polysweep.trainer.streams import stream


@dataclass(frozen=True)
class Samples:
    """Samples that stay on the device: `inputs` (N, ...), `targets` (N, ...); class labels are int64.

    `rows` (n,) int64 picks those that belong to this set, so that a split copies nothing; None is all of them.
    """

    inputs: Tensor
    targets: Tensor
    rows: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets if self.rows is None else self.rows)

    def first(self, count: int) -> Self:
        """The first `count` of this set, or all if there are fewer."""
        return type(self)(self.inputs, self.targets, self.positions(torch.arange(min(count, len(self)))))

    def positions(self, order: Tensor) -> Tensor:
        """The indices into `inputs` of the `order`-th samples of this set."""
        return order if self.rows is None else self.rows[order]

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All inputs and targets in order, `size` at a time."""
        for at in torch.arange(len(self), device=self.targets.device).split(size):
            positions = self.positions(at)
            yield self.inputs[positions], self.targets[positions]

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """The same samples on `device`, what is a float in `dtype`."""
        inputs, targets = (
            tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in (self.inputs, self.targets)
        )
        return type(self)(inputs, targets, None if self.rows is None else self.rows.to(device))


class Split(NamedTuple):
    """Training, validation (None if nothing is held out) and test set."""

    train: Samples
    val: Samples | None
    test: Samples


def train_val_test(
    inputs: Any, targets: Any, val_fraction: float = 0.0, *, test_fraction: float = 0.2, standardise: bool = True
) -> Split:
    """Split arrays, frames or tensors (N, ...) for `Classification(*split, classes=...)` or `Regression(*split)`.

    `test_fraction` of all, then `val_fraction` of the rest are held out: stratified by label if the targets are
    integers or truth values, which become class labels; the same for every seed. `standardise` makes every input
    feature (x - mean) / std, both of the training set; a constant feature becomes 0.

    Raises `ConfigError` for what is not an array of numbers, and for an empty set or class.
    """
    x, y = _tensor("inputs", inputs), _tensor("targets", targets)
    if len(x) != len(y):
        raise ConfigError("task", f"{len(x)} inputs, but {len(y)} targets")
    if not 0 < test_fraction < 1:
        raise ConfigError("task", f"test_fraction: {test_fraction}; expected a number between 0 and 1")
    if not y.is_floating_point():
        y = y.long()
    kept, test = split(torch.arange(len(y)), y, round(test_fraction * len(y)))
    train, val = hold_out(kept, y, val_fraction)
    if standardise:
        x = x.double()
        std, mean = torch.std_mean(x[train], dim=0, correction=0)
        x = ((x - mean) / torch.where(std > 0, std, 1)).where(std > 0, 0)
    return Split(Samples(x, y, train), None if val is None else Samples(x, y, val), Samples(x, y, test))


def _tensor(name: str, values: Any) -> Tensor:
    """An array of numbers as a tensor; truth values become 0 and 1."""
    array = values if isinstance(values, Tensor) else np.array(values)  # a copy: a frame's own may be read-only
    try:
        tensor = torch.as_tensor(array)
    except TypeError:
        raise ConfigError("task", f"{name} are of type {array.dtype}; expected an array of numbers") from None
    if not tensor.dim():
        raise ConfigError("task", f"{name} are a single number; expected an array (samples, ...)")
    return tensor.long() if tensor.dtype == torch.bool else tensor


def hold_out(rows: Tensor, labels: Tensor, val_fraction: float) -> tuple[Tensor, Tensor | None]:
    """The training rows that stay, and those held out for validation: the same for every seed, see `split`."""
    return split(rows, labels, round(val_fraction * len(rows))) if val_fraction else (rows, None)


def split(rows: Tensor, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """`rows` without `size` of them, and those: the same on every call and platform, stratified by integer labels.

    Shuffled, sorted by class, and every (n / size)-th held out, so that each class gives its share to within one.
    Raises `ConfigError` if a class, or all, would be empty on either side.
    """
    order = rows[torch.randperm(len(rows), generator=stream(0, "split", size))]
    if not 0 < size < len(order):
        raise ConfigError("val_fraction", f"holding out {size} of {len(order)} samples leaves a set empty")
    is_class = not labels.is_floating_point()
    if is_class:
        order = order[torch.argsort(labels[order], stable=True)]
    share = torch.arange(len(order) + 1) * size // len(order)
    picked = share[1:] > share[:-1]
    kept, held_out = order[~picked].sort().values, order[picked].sort().values
    for side in (kept, held_out) if is_class else ():
        missing = set(labels[rows].unique().tolist()) - set(labels[side].tolist())
        if missing:
            raise ConfigError("val_fraction", f"holding out {size} of {len(rows)} samples empties class {min(missing)}")
    return kept, held_out
