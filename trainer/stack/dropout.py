"""Dropout whose masks are drawn by row: each from the row's seed, the step and the layer, whatever K is.

torch's own draws from one generator, in whose order the rows of a stack would depend on one another; vmap refuses it. A
mask here is a hash of its place. It needs no state: a resumed trial draws what the uninterrupted one drew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from polysweep.trainer.draws import mixed, places, threshold


class RowDropout(nn.Module):
    """What the layers here share: `key` () int64, set before a pass, and a mask from it for each call in the pass."""

    by_channel: ClassVar[bool] = False  # whether whole channels of a sample are dropped
    unbatched: ClassVar[int] = 0  # dimensions of an input that has no batch, as torch has it
    p: float
    key: Tensor
    calls: int

    def forward(self, x: Tensor) -> Tensor:
        """(b, ...) -> (b, ...); x itself in an evaluation."""
        if not self.training or not self.p:
            return x
        return self.changed(x) if self.p < 1 else x * 0

    def changed(self, x: Tensor) -> Tensor:
        """What a layer makes of x with 0 < p < 1."""
        raise NotImplementedError

    def keep(self, x: Tensor) -> Tensor:
        """Which entries of x stay, each with probability 1 - p: bool, as large as x or one for each channel."""
        leading = x.dim() if not self.by_channel else 1 if x.dim() == self.unbatched else 2
        shape = torch.Size((*x.shape[:leading], *[1] * (x.dim() - leading)))
        key = mixed(self.key + self.calls)  # a layer may stand at several places of a module
        self.calls += 1
        return (mixed(places(shape.numel(), x.device) + key) >= threshold(self.p)).view(shape)


class _Scaled(RowDropout):
    """x keep / (1 - p)."""

    def changed(self, x: Tensor) -> Tensor:
        """See the class."""
        return x * (self.keep(x).to(x.dtype) / (1 - self.p))


class _Alpha(RowDropout):
    """Dropped entries take SELU's lower limit alpha, and mean and variance stay those of the input.

        a (x keep + alpha (1 - keep) - alpha p),   a = ((1 - p) (1 + p alpha^2))^(-1/2)

    Source: Klambauer et al. 2017, Self-Normalizing Neural Networks.
    """

    def changed(self, x: Tensor) -> Tensor:
        """See the class."""
        scale: float = ((1 - self.p) * (1 + self.p * _SELU_LIMIT**2)) ** -0.5
        return scale * (torch.where(self.keep(x), x, _SELU_LIMIT) - _SELU_LIMIT * self.p)


class Dropout(_Scaled, nn.Dropout):
    """`nn.Dropout`."""


class Dropout1d(_Scaled, nn.Dropout1d):
    """`nn.Dropout1d`."""

    by_channel, unbatched = True, 2


class Dropout2d(_Scaled, nn.Dropout2d):
    """`nn.Dropout2d`."""

    by_channel = True


class Dropout3d(_Scaled, nn.Dropout3d):
    """`nn.Dropout3d`."""

    by_channel, unbatched = True, 4


class AlphaDropout(_Alpha, nn.AlphaDropout):
    """`nn.AlphaDropout`."""


class FeatureAlphaDropout(_Alpha, nn.FeatureAlphaDropout):
    """`nn.FeatureAlphaDropout`."""

    by_channel = True


_BY_ROW: Final[dict[type[nn.Module], type[RowDropout]]] = {
    nn.Dropout: Dropout,
    nn.Dropout1d: Dropout1d,
    nn.Dropout2d: Dropout2d,
    nn.Dropout3d: Dropout3d,
    nn.AlphaDropout: AlphaDropout,
    nn.FeatureAlphaDropout: FeatureAlphaDropout,
}
_SELU_LIMIT: Final = -1.7580993408473766
"""-lambda alpha of SELU."""


def draw_by_row(module: nn.Module) -> list[RowDropout]:
    """Make the module's dropout layers draw by row; returns them. A subclass of a user's own stays what it is."""
    layers = []
    for layer in module.modules():
        if type(layer) in _BY_ROW:
            layer.__class__ = _BY_ROW[type(layer)]
        if isinstance(layer, RowDropout):
            layers.append(layer)
    return layers


def set_keys(layers: Sequence[RowDropout], key: Tensor) -> None:
    """Give every layer its own key of a row's step, ()."""
    for index, layer in enumerate(layers):
        layer.key, layer.calls = mixed(key + (index + 1)), 0
