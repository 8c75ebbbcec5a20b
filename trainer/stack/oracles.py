"""The oracle of a task with a model: passes of K rows through one module, by itself at K = 1, under vmap beyond."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polysweep.trainer.components.plugins import component
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.draws import step_keys
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.passes import LossAndGrad, Weigh
from polysweep.trainer.stack.bfloat16 import use_bfloat16
from polysweep.trainer.stack.dropout import draw_by_row, set_keys
from polysweep.trainer.streams import stream_seed
from polysweep.trainer.task import Buffers, Oracle, Rows

Losses = Callable[[Tensor, Tensor], Tensor]
"""Logits (K, b, classes) and labels (K, b) -> losses (K,)."""


class ModuleOracle(Oracle):
    """Loss and gradient by a module, which it owns from now on.

    `start` are the rows before step 0, `seeds` (K,) those of their dropout. Batch norms are updated by all passes of a
    step, or by its first one alone. Both passes have the same dropout: it is one mini-batch, and one f.
    """

    def __init__(
        self, module: nn.Module, start: Rows, losses: Losses, seeds: Tensor, *, first_alone: bool = False
    ) -> None:
        self._module = module
        self._start, self._losses, self._first_alone = start, losses, first_alone
        self._dropouts = draw_by_row(module)
        self._seeds = self._keys = seeds
        self._first: Buffers | None = None

    def start(self) -> Rows:
        """See `Oracle`."""
        return self._start

    def begin(self, buffers: Buffers, step: Tensor) -> None:
        """See `Oracle`."""
        self._first = None
        if self._dropouts:
            self._keys = step_keys(self._seeds, step)
        self._module.train()
        self.load(buffers)

    def pass_at(self, theta: Tensor, inputs: Tensor, labels: Tensor, weigh: Weigh | None = None) -> LossAndGrad:
        """See `Oracle`."""
        logits = self.forward(theta, inputs).to(theta.dtype)
        if weigh is None:
            loss = self._losses(logits, labels)
        else:
            by_sample = self._by_sample(logits, labels)
            logits.register_hook(torch.Tensor.contiguous)  # of their gradient too, else what follows depends on it
            loss = (weigh(by_sample.detach()) * by_sample).sum(1)
        grad = self.gradient(loss)
        if self._first is None and self._first_alone:
            self._first = self.now()
        logits = logits.detach()
        return LossAndGrad(loss.detach(), grad, logits, lambda: self._by_sample(logits, labels))

    def _by_sample(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The losses of the samples, (K, b): each is the mean loss of a mini-batch of one."""
        losses: Tensor = torch.vmap(self._losses, 1, 1)(logits.unsqueeze(2), labels.unsqueeze(2))
        return losses.contiguous()  # else the order in which a row is added up depends on its place in the stack

    def statistics(self) -> Buffers:
        """See `Oracle`."""
        return self._first or self.now()

    def shapes(self) -> Sequence[torch.Size]:
        """See `Oracle`."""
        return [parameter.shape for parameter in self._module.parameters()]

    @torch.no_grad()
    def evaluate(self, rows: Rows, inputs: Tensor) -> Tensor:
        """Logits (K, b, classes) of shared inputs (b, ...), with running statistics."""
        self._module.eval()
        self.load(rows.buffers)
        return self.forward(rows.theta, inputs.expand(len(rows.theta), *inputs.shape)).to(rows.theta.dtype)

    @abstractmethod
    def load(self, buffers: Buffers) -> None:
        """Put the running statistics into the module."""

    @abstractmethod
    def now(self) -> Buffers:
        """The module's running statistics; later passes do not change what is returned."""

    @abstractmethod
    def forward(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """(K, P), inputs (K, b, ...) -> logits (K, b, classes), differentiable by `gradient`."""

    @abstractmethod
    def gradient(self, loss: Tensor) -> Tensor:
        """Gradient of the last forward pass: losses (K,) -> (K, P)."""


class Plain(ModuleOracle):
    """K = 1. The module's own tensors are views of two flat ones, so a pass is the module's and nothing more.

    Images come with channels last in memory; where that does not pay they are copied first.
    """

    def __init__(
        self,
        module: nn.Module,
        start: Rows,
        losses: Losses,
        seeds: Tensor,
        *,
        first_alone: bool = False,
        channels_last: bool = True,
    ) -> None:
        super().__init__(module, start, losses, seeds, first_alone=first_alone)
        self._channels_last = channels_last
        self._parameters = list(module.parameters())
        floats, counters = buffers_of(module)
        self._theta = _share(self._parameters, torch.float32)
        self._floats = _share(list(floats.values()), self._theta.dtype)
        self._counters = _share(list(counters.values()), torch.int64)

    def load(self, buffers: Buffers) -> None:
        """See `ModuleOracle`."""
        self._floats.copy_(buffers.floats.view(-1))
        self._counters.copy_(buffers.counters.view(-1))

    def now(self) -> Buffers:
        """See `ModuleOracle`."""
        return Buffers(self._floats.clone().unsqueeze(0), self._counters.clone().unsqueeze(0))

    def forward(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """See `ModuleOracle`."""
        self._theta.copy_(theta.view(-1))
        set_keys(self._dropouts, self._keys[0])
        batch = inputs.squeeze(0)
        logits = self._module(batch if self._channels_last else batch.contiguous())
        if not isinstance(logits, Tensor):
            raise ConfigError("model", f"it gives a {type(logits).__name__}, expected logits (images, classes)")
        return logits.unsqueeze(0)

    def gradient(self, loss: Tensor) -> Tensor:
        """See `ModuleOracle`."""
        grads = torch.autograd.grad(loss.squeeze(0), self._parameters)
        return torch.cat([g.reshape(-1) for g in grads]).unsqueeze(0)


class Vmapped(ModuleOracle):
    """K > 1. `torch.vmap` over the module with stacked parameters and buffers."""

    def __init__(
        self, module: nn.Module, start: Rows, losses: Losses, seeds: Tensor, *, first_alone: bool = False
    ) -> None:
        super().__init__(module, start, losses, seeds, first_alone=first_alone)
        floats, counters = buffers_of(module)
        self._parameters = Layout(dict(module.named_parameters()))
        self._floats, self._counters = Layout(floats), Layout(counters)
        self._leaf = torch.empty(0)
        self._working: dict[str, Tensor] = {}

    def load(self, buffers: Buffers) -> None:
        """See `ModuleOracle`."""
        self._loaded = buffers
        views = self._floats.views(buffers.floats) | self._counters.views(buffers.counters)
        # Contiguous copies: under vmap, batch norm loses its update of a buffer that is a strided view.
        self._working = {n: v.clone(memory_format=torch.contiguous_format) for n, v in views.items()}

    def now(self) -> Buffers:
        """See `ModuleOracle`."""
        return Buffers(
            self._gather(self._floats, self._loaded.floats), self._gather(self._counters, self._loaded.counters)
        )

    def _gather(self, layout: Layout, loaded: Tensor) -> Tensor:
        if not layout.names:
            return loaded
        return torch.cat([self._working[n].reshape(len(loaded), -1) for n in layout.names], dim=1)

    def forward(self, theta: Tensor, inputs: Tensor) -> Tensor:
        """See `ModuleOracle`."""

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], rows: Tensor, key: Tensor) -> Any:
            set_keys(self._dropouts, key)
            return functional_call(self._module, {**parameters, **buffers}, (rows,))

        self._leaf = theta.detach().requires_grad_()
        logits: Tensor = torch.vmap(one)(self._parameters.views(self._leaf), self._working, inputs, self._keys)
        return logits

    def gradient(self, loss: Tensor) -> Tensor:
        """See `ModuleOracle`."""
        (grad,) = torch.autograd.grad(loss.sum(), self._leaf)
        return grad


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


def module_oracle(
    configs: Sequence[TrialConfig],
    input_shape: tuple[int, ...],
    classes: int,
    losses: Losses,
    factory_kwargs: Mapping[str, Any],
) -> ModuleOracle:
    """The oracle of a stack by the model of its configs, each row initialised from its own `init` stream in float32."""
    first, device, dtype = configs[0], factory_kwargs["device"], factory_kwargs["dtype"]
    module = nn.Module()
    by_seed: dict[int, Rows] = {}
    for config in configs:
        if config.seed not in by_seed:
            seed = stream_seed(config.seed, "init")
            module = build_model(first.model, first.model_options, input_shape, classes, seed)
            by_seed[config.seed] = rows_of(module, dtype)
    module = module.to(dtype)
    if first.precision == "bfloat16":
        use_bfloat16(module, f"model {first.model!r}", stacked=len(configs) > 1)
    rows = [by_seed[config.seed] for config in configs]
    start = Rows(
        torch.cat([row.theta for row in rows]).to(device),
        Buffers(
            torch.cat([row.buffers.floats for row in rows]).to(device),
            torch.cat([row.buffers.counters for row in rows]).to(device),
        ),
    )
    module, first_alone = module.to(device), first.batchnorm_statistics == "first"
    seeds = torch.tensor([stream_seed(config.seed, "dropout") for config in configs], device=device)
    if len(configs) > 1:
        return Vmapped(module, start, losses, seeds, first_alone=first_alone)
    # cuDNN has its float32 kernels for the contiguous layout, those of tensor cores for channels last.
    channels_last = device.type != "cuda" or first.precision in ("bfloat16", "tf32")
    return Plain(module, start, losses, seeds, first_alone=first_alone, channels_last=channels_last)


def build_model(
    name: str, options: Mapping[str, Any], input_shape: tuple[int, ...], classes: int, seed: int
) -> nn.Module:
    """The model, initialised by torch's generator at `seed`. Raises `ConfigError` if it is no module."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = component("model", name).load()(input_shape, classes, **options)
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise ConfigError("model", f"{name!r} gives a {kind}, expected a torch.nn.Module")
    return module


def rows_of(module: nn.Module, dtype: torch.dtype) -> Rows:
    """The module's parameters and buffers as one row, (1, ...)."""
    floats, counters = buffers_of(module)
    return Rows(
        _flatten(list(module.parameters()), dtype),
        Buffers(_flatten(list(floats.values()), dtype), _flatten(list(counters.values()), torch.int64)),
    )


def buffers_of(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The module's floating buffers, and its counters."""
    buffers = dict(module.named_buffers())
    return (
        {name: buffer for name, buffer in buffers.items() if buffer.is_floating_point()},
        {name: buffer for name, buffer in buffers.items() if not buffer.is_floating_point()},
    )


def _flatten(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """One row (1, P) of the tensors' values."""
    parts = [tensor.detach().reshape(1, -1).to(dtype) for tensor in tensors]
    return torch.cat(parts, dim=1) if parts else torch.zeros(1, 0, dtype=dtype)


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
