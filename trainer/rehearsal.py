"""Tries a user's own parts before anything is claimed: a step on a few images, and whether vmap takes the model."""

from __future__ import annotations

import traceback
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from polysweep.trainer.components.plugins import component, is_own
from polysweep.trainer.config import COMPONENT_FIELDS, Scalar, TrialConfig
from polysweep.trainer.errors import ConfigError, UserError

FEW: Final = 8
"""Images of a rehearsal."""


def rehearse(config: TrialConfig, data: str | Path = "") -> None:
    """Train one step on a few images and evaluate them, where a part of the config is the user's own.

    Raises `ConfigError` that names the parts, the exception and where in the user's code it came from.
    """
    own = [kind for kind in COMPONENT_FIELDS if is_own(kind, getattr(config, kind))]
    if not own:
        return
    import torch

    from polysweep.trainer.convex.task import Convex
    from polysweep.trainer.epoch import EpochRunner
    from polysweep.trainer.stack.stack import Stack
    from polysweep.trainer.tasks.loading import load_task

    count = min(config.batch_size, FEW)
    try:
        task = load_task(config, data)
        with torch.random.fork_rng(devices=[]):
            stack = Stack([config], task)
            if isinstance(task, Convex):
                EpochRunner(stack).rehearse(config.batch_size)
                return
            images, _ = next(task.test.chunks(count))
            shape = tuple(stack.evaluate(task.normalise(images)).shape)
            if shape != (1, len(images), task.classes):
                expected = f"(images, classes) = ({len(images)}, {task.classes})"
                raise ConfigError("model", f"{config.model!r} gives logits {shape[1:]}, expected {expected}")
            EpochRunner(stack).rehearse(count)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            own[0],
            f"a step with {', '.join(f'{kind} {getattr(config, kind)!r}' for kind in own)} fails: "
            f"{type(error).__name__}: {reason} ({where.filename}:{where.lineno})",
        ) from None


def refusal(config: TrialConfig, data: str | Path = "") -> str:
    """Why the config's model cannot be stacked, in a line; empty where it can.

    Two rows make a training pass with gradients and an evaluation under vmap, as `trainer.stack.vmap.Vmapped` does.
    """
    task = component("task", config.task)
    shape, classes = task.input_shape, task.classes
    if not shape:
        from polysweep.trainer.tasks.loading import load_task

        loaded = load_task(config, data)
        shape, classes = loaded.input_shape, loaded.classes
    return _refusal(config.model, tuple(sorted(config.model_options.items())), shape, classes)


@lru_cache(maxsize=64)
def _refusal(model: str, options: tuple[tuple[str, Scalar], ...], shape: tuple[int, ...], classes: int) -> str:
    import torch

    from polysweep.trainer.stack.vmap import Buffers, Vmapped, flatten

    try:
        with torch.random.fork_rng(devices=[]):
            module = component("model", model).load()(shape, classes, **dict(options))
            images = torch.randn(2, 2, *shape)
    except (Exception, SystemExit) as error:
        raise ConfigError("model", f"{model!r} cannot be built: {type(error).__name__}: {error}") from None
    if not isinstance(module, torch.nn.Module):
        raise ConfigError("model", f"{model!r} gives a {type(module).__name__}, expected a torch.nn.Module")
    tensors: Any = (
        [b for b in module.buffers() if b.is_floating_point()],
        [b for b in module.buffers() if not b.is_floating_point()],
    )
    floats, counters = flatten(tensors[0], torch.float32), flatten(tensors[1], torch.int64)
    theta = flatten(list(module.parameters()), torch.float32).expand(2, -1).contiguous()
    engine = Vmapped(module)
    try:
        for training in (True, False):
            engine.begin(Buffers(floats.expand(2, -1), counters.expand(2, -1)), training=training)
            logits = engine.forward(theta, images)
            if training:
                engine.gradient(logits.square().mean((1, 2)))
                engine.statistics()
    except (Exception, SystemExit) as error:  # whatever vmap, autograd or the model says
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else repr(error)
    return ""
