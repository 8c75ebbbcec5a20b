"""Forward and backward passes of K rows at once: the plain module at K = 1, vmap over it beyond."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polysweep.trainer.errors import ConfigError


class Buffers(NamedTuple):
    """A module's buffers for K rows: floating ones (K, B), counters (K, I)."""

    floats: Tensor
    counters: Tensor


class Layout:
    """The place of named tensors in the rows of a matrix (K, P)."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.names = list(tensors)
        self._shapes = [t.shape for t in tensors.values()]
        self._sizes = [t.numel() for t in tensors.values()]

    def views(self, matrix: Tensor) -> dict[str, Tensor]:
        """(K, P) -> named views of shape (K, ...)."""
        parts = matrix.split(self._sizes, dim=1)
        return {n: p.view(-1, *s) for n, p, s in zip(self.names, parts, self._shapes, strict=True)}


class Engine(Protocol):
    """What a stack asks of its module. `begin` starts a step; `forward` may be called several times in it."""

    def begin(self, buffers: Buffers, *, training: bool) -> None:
        """Take the running statistics of before the step."""
        ...

    def forward(self, theta: Tensor, images: Tensor) -> Tensor:
        """(K, P), images (K, b, C, H, W) -> logits (K, b, classes), differentiable by `gradient`."""
        ...

    def gradient(self, loss: Tensor) -> Tensor:
        """Gradient of the last forward pass: losses (K,) -> (K, P)."""
        ...

    def statistics(self) -> Buffers:
        """The running statistics after the passes so far; later passes do not change what is returned."""
        ...


def make_engine(module: nn.Module, width: int, *, channels_last: bool = True) -> Engine:
    """The engine for K = `width`; it owns `module` from now on.

    Images come with channels last in memory; where that does not pay they are copied first.
    """
    return Plain(module, channels_last) if width == 1 else Vmapped(module)


class Plain:
    """K = 1. The module's own tensors are views of two flat ones, so a pass is the module's and nothing more."""

    def __init__(self, module: nn.Module, channels_last: bool) -> None:
        self._module = module
        self._channels_last = channels_last
        self._parameters = list(module.parameters())
        floats = [b for b in module.buffers() if b.is_floating_point()]
        counters = [b for b in module.buffers() if not b.is_floating_point()]
        self._theta = _share(self._parameters, torch.float32)
        self._floats = _share(floats, self._theta.dtype)
        self._counters = _share(counters, torch.int64)

    def begin(self, buffers: Buffers, *, training: bool) -> None:
        """See `Engine`."""
        self._module.train(training)
        self._floats.copy_(buffers.floats.view(-1))
        self._counters.copy_(buffers.counters.view(-1))

    def forward(self, theta: Tensor, images: Tensor) -> Tensor:
        """See `Engine`."""
        self._theta.copy_(theta.view(-1))
        batch = images.squeeze(0)
        logits = self._module(batch if self._channels_last else batch.contiguous())
        if not isinstance(logits, Tensor):
            raise ConfigError("model", f"it gives a {type(logits).__name__}, expected logits (images, classes)")
        return logits.unsqueeze(0)

    def gradient(self, loss: Tensor) -> Tensor:
        """See `Engine`."""
        grads = torch.autograd.grad(loss.squeeze(0), self._parameters)
        return torch.cat([g.reshape(-1) for g in grads]).unsqueeze(0)

    def statistics(self) -> Buffers:
        """See `Engine`."""
        return Buffers(self._floats.clone().unsqueeze(0), self._counters.clone().unsqueeze(0))


class Vmapped:
    """K > 1. `torch.vmap` over the module with stacked parameters and buffers."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        buffers = dict(module.named_buffers())
        self._parameters = Layout(dict(module.named_parameters()))
        self._floats = Layout({n: b for n, b in buffers.items() if b.is_floating_point()})
        self._counters = Layout({n: b for n, b in buffers.items() if not b.is_floating_point()})
        self._leaf = torch.empty(0)
        self._working: dict[str, Tensor] = {}
        self._buffers: Buffers | None = None

    def begin(self, buffers: Buffers, *, training: bool) -> None:
        """See `Engine`."""
        self._module.train(training)
        self._buffers = buffers
        views = self._floats.views(buffers.floats) | self._counters.views(buffers.counters)
        # Contiguous copies: under vmap, batch norm loses its update of a buffer that is a strided view.
        self._working = {n: v.clone(memory_format=torch.contiguous_format) for n, v in views.items()}

    def forward(self, theta: Tensor, images: Tensor) -> Tensor:
        """See `Engine`."""

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], rows: Tensor) -> Any:
            return functional_call(self._module, {**parameters, **buffers}, (rows,))

        self._leaf = theta.detach().requires_grad_()
        logits: Tensor = torch.vmap(one)(self._parameters.views(self._leaf), self._working, images)
        return logits

    def gradient(self, loss: Tensor) -> Tensor:
        """See `Engine`."""
        (grad,) = torch.autograd.grad(loss.sum(), self._leaf)
        return grad

    def statistics(self) -> Buffers:
        """See `Engine`."""
        assert self._buffers is not None
        return Buffers(
            self._gather(self._floats, self._buffers.floats),
            self._gather(self._counters, self._buffers.counters),
        )

    def _gather(self, layout: Layout, before: Tensor) -> Tensor:
        if not layout.names:
            return before
        return torch.cat([self._working[n].reshape(len(before), -1) for n in layout.names], dim=1)


def flatten(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """One row (P,) of the tensors' values."""
    parts = [tensor.detach().reshape(-1).to(dtype) for tensor in tensors]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=dtype)


def _share(tensors: Sequence[Tensor], empty: torch.dtype) -> Tensor:
    """Make the tensors views of one flat tensor, which is returned; of the dtype `empty` if there are none."""
    if not tensors:
        return torch.zeros(0, dtype=empty)
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    offset = 0
    for tensor in tensors:
        tensor.data = flat[offset : offset + tensor.numel()].view(tensor.shape)
        offset += tensor.numel()
    return flat
