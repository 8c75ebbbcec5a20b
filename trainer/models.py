"""Models as plain `torch.nn.Module`s: nothing in them knows about stacks.

A builder takes the shape of one input, the number of classes and the model's options. Weights are drawn from
torch's default generator, which the stack seeds from the trial's `init` stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm and a parameter-free shortcut (option A of He et al. 2016).

    Where the block halves the image, the shortcut takes every second pixel and pads the new channels with zeros.
    """

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.pad = channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu_(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.stride != 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.pad:
            x = F.pad(x, (0, 0, 0, 0, self.pad // 2, self.pad - self.pad // 2))
        return F.relu_(out.add_(x))


class ResNet(nn.Module):
    """The CIFAR-style residual network of He et al. 2016, section 4.2: depth 6 n + 2, three widths.

    He initialisation (fan in, normal) of convolutions and of the linear layer, whose bias is torch's default.
    """

    def __init__(
        self, input_shape: Sequence[int], classes: int, blocks: int, widths: Sequence[int] = (16, 32, 64)
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(input_shape[0], widths[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        layers: list[nn.Module] = []
        channels = widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                layers.append(Block(channels, width, stride=2 if stage and not block else 1))
                channels = width
        self.blocks = nn.Sequential(*layers)
        self.linear = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        out = self.blocks(F.relu_(self.bn(self.conv(x))))
        return torch.as_tensor(self.linear(out.mean((2, 3))))


class MLP(nn.Module):
    """`layers` hidden layers of `hidden` rectified units with dropout behind them, torch's default initialisation."""

    def __init__(self, input_shape: Sequence[int], classes: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        sizes = [torch.Size(input_shape).numel(), *[hidden] * layers]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.linear = nn.Linear(sizes[-1], classes)
        self.dropouts = nn.ModuleList(nn.Dropout(dropout) if dropout else nn.Identity() for _ in self.hidden)

    def forward(self, x: Tensor) -> Tensor:
        out = x.flatten(1)
        for layer, dropout in zip(self.hidden, self.dropouts, strict=True):
            out = dropout(F.relu(layer(out)))
        return torch.as_tensor(self.linear(out))


def resnet8(input_shape: Sequence[int], classes: int) -> nn.Module:
    """One block per stage at widths 8, 16, 32: 19.6 thousand parameters, sized for 8x8 images."""
    return ResNet(input_shape, classes, blocks=1, widths=(8, 16, 32))


def resnet20(input_shape: Sequence[int], classes: int) -> nn.Module:
    """The paper's ResNet-20: three blocks per stage, 0.27 million parameters."""
    return ResNet(input_shape, classes, blocks=3)


def resnet32(input_shape: Sequence[int], classes: int) -> nn.Module:
    """The paper's ResNet-32: five blocks per stage, 0.46 million parameters."""
    return ResNet(input_shape, classes, blocks=5)


class Linear(nn.Module):
    """One linear layer without bias, torch's default initialisation: softmax regression, which is convex."""

    def __init__(self, input_shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(torch.Size(input_shape).numel(), classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.linear(x.flatten(1)))


def linear(input_shape: Sequence[int], classes: int) -> nn.Module:
    """x -> W x; of a convex task the rows of the stack are x itself, and nothing is built."""
    return Linear(input_shape, classes)


def mlp(input_shape: Sequence[int], classes: int, hidden: int = 64, layers: int = 2, dropout: float = 0.0) -> nn.Module:
    """A multilayer perceptron, the cheapest real model: for tests and near-zero work."""
    return MLP(input_shape, classes, hidden, layers, dropout)
