"""Tries a user's own parts before anything is claimed: a step on a few images, and whether vmap takes the model."""

from __future__ import annotations

import traceback
from functools import lru_cache
from pathlib import Path
from typing import Final

from polysweep.trainer.components.plugins import component, is_own
from polysweep.trainer.config import COMPONENT_FIELDS, OptionValue, TrialConfig
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

    from polysweep.trainer.epoch import EpochRunner
    from polysweep.trainer.stack.stack import Stack
    from polysweep.trainer.tasks.loading import load_task

    try:
        task = load_task(config, data).few(min(config.batch_size, FEW))
        with torch.random.fork_rng(devices=[]):
            stack = Stack([config], task)
            EpochRunner(stack).rehearse(min(config.batch_size, task.size))
            stack.measure(1)
            stack.tensors()  # what a checkpoint would hold
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
    """Which part of the config cannot be stacked and why, in a line; empty if all can.

    Two rows of a user's model make a training pass with gradients and an evaluation under vmap, as
    `trainer.stack.oracles.Vmapped` does.
    """
    if component("optimizer", config.optimizer).adapter:
        return f"optimizer {config.optimizer!r} updates one model at a time, which is slower than a stack"
    if not is_own("model", config.model):
        return ""
    task = component("task", config.task)
    shape, classes = task.input_shape, task.classes
    if not shape:
        from polysweep.trainer.tasks.loading import load_task

        loaded = load_task(config, data)
        shape, classes = loaded.input_shape, loaded.classes
    reason = _refusal(config.model, tuple(sorted(config.model_options.items())), shape, classes)
    return f"model {config.model!r} cannot be stacked ({reason})" if reason else ""


@lru_cache(maxsize=64)
def _refusal(model: str, options: tuple[tuple[str, OptionValue], ...], shape: tuple[int, ...], classes: int) -> str:
    import torch

    from polysweep.trainer.stack.oracles import Vmapped, build_model, rows_of
    from polysweep.trainer.task import Buffers, Rows

    try:
        module = build_model(model, dict(options), shape, classes, seed=0)
        images = torch.randn(2, 2, *shape, generator=torch.Generator().manual_seed(0))
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError("model", f"{model!r} cannot be built: {type(error).__name__}: {error}") from None
    theta, (floats, counters) = rows_of(module, torch.float32)
    two = Rows(theta.repeat(2, 1), Buffers(floats.repeat(2, 1), counters.repeat(2, 1)))
    oracle = Vmapped(module, two, lambda logits, _: logits.square().mean((1, 2)), torch.arange(2))
    try:
        oracle.begin(two.buffers, torch.tensor(0))
        oracle.pass_at(two.theta, images, torch.empty(0))
        oracle.statistics()
        oracle.evaluate(two, images[0])
    except (Exception, SystemExit) as error:  # whatever vmap, autograd or the model says
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else repr(error)
    return ""
