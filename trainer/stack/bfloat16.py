"""bfloat16 products: convolutions and linear layers that cast for themselves, beside float32 batch norm.

`torch.autocast` would leave a convolution under vmap in float32 on the CPU, without a word.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polysweep.trainer.errors import ConfigError


def _cast(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.to(torch.bfloat16)


class Conv2d(nn.Conv2d):
    """A convolution with weights and inputs in bfloat16; so is what it returns."""

    def forward(self, input: Tensor) -> Tensor:
        result: Tensor = self._conv_forward(_cast(input), _cast(self.weight), _cast(self.bias))
        return result


class Linear(nn.Linear):
    """A linear layer with weights and inputs in bfloat16; so is what it returns."""

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(_cast(input), _cast(self.weight), _cast(self.bias))


class BatchNorm2d(nn.BatchNorm2d):
    """Batch norm with statistics, weights and arithmetic in float32; what it returns has the precision of its input.

    A plain module takes a bfloat16 input beside float32 weights; under vmap (`stacked`) torch refuses it, so the input
    is cast there.
    """

    stacked = False

    def forward(self, input: Tensor) -> Tensor:
        if self.stacked:
            return super().forward(input.float()).to(input.dtype)
        return super().forward(input)


_CASTING: Final[dict[type[nn.Module], type[nn.Module]]] = {
    nn.Conv2d: Conv2d,
    nn.Linear: Linear,
    nn.BatchNorm2d: BatchNorm2d,
}


def use_bfloat16(module: nn.Module, name: str, *, stacked: bool) -> None:
    """Make the module's products bfloat16: its layers take the class of the same name here.

    `stacked` is whether it will run under vmap. Raises `ConfigError` if the module, called `name`, has parameters
    in a layer of another kind.
    """
    for layer in module.modules():
        if next(layer.parameters(recurse=False), None) is None and next(layer.buffers(recurse=False), None) is None:
            continue
        if type(layer) not in _CASTING:
            kinds = ", ".join(kind.__name__ for kind in _CASTING)
            raise ConfigError(
                "precision", f"bfloat16 is not for a {type(layer).__name__}, which {name} has; its layers: {kinds}"
            )
        layer.__class__ = _CASTING[type(layer)]
        if isinstance(layer, BatchNorm2d):
            layer.stacked = stacked
