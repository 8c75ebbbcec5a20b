"""Tries a user's own parts before anything is claimed: a step on a few samples, and whether they can be stacked."""

from __future__ import annotations

import json
import traceback
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polysweep.trainer.components.plugins import component, is_own
from polysweep.trainer.config import COMPONENT_FIELDS, TrialConfig
from polysweep.trainer.errors import ConfigError, UserError

if TYPE_CHECKING:
    from polysweep.trainer.task import Task

FEW: Final = 8
"""Samples of a rehearsal."""


def rehearse(config: TrialConfig, data: str | Path = "") -> None:
    """Train one step on a few samples and evaluate them, where a part of the config is the user's own.

    Raises `ConfigError` that names the parts, the exception and where in the user's code it came from.
    """
    own = own_parts(config)
    if not own:
        return
    try:
        _step(config, _loaded(config, data), rows=1)
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            own[0],
            f"a step with {_named(config, own)} fails: "
            f"{type(error).__name__}: {reason} ({where.filename}:{where.lineno})",
        ) from None


def refusal(config: TrialConfig, data: str | Path = "") -> str:
    """Which of the user's own parts cannot be stacked and why, in a line; empty if all can.

    Two rows make the step of a rehearsal. Raises `UserError` as `rehearse` does; other errors are left to it.
    """
    if component("optimizer", config.optimizer).adapter:
        return f"optimizer {config.optimizer!r} updates one model at a time, which is slower than a stack"
    return _refusal(json.dumps(config.canonical()), str(data)) if own_parts(config) else ""


def own_parts(config: TrialConfig) -> list[str]:
    """The kinds of parts that are the user's own."""
    return [kind for kind in COMPONENT_FIELDS if is_own(kind, getattr(config, kind))]


@lru_cache(maxsize=64)
def _refusal(canonical: str, data: str) -> str:
    config = TrialConfig.parse(json.loads(canonical), recorded=True)
    task = _loaded(config, data) if is_own("task", config.task) else _stand_in(config)
    try:
        _step(config, task, rows=2)
    except (Exception, SystemExit) as error:  # whatever vmap, autograd or a part says
        try:
            _step(config, task, rows=1)
        except UserError:
            raise
        except (Exception, SystemExit):  # not for its width: a rehearsal says what it is
            return ""
        own = [kind for kind in own_parts(config) if kind != "scheduler"]
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else repr(error)
        return f"{_named(config, own)} cannot be stacked ({reason})"
    return ""


def _named(config: TrialConfig, kinds: list[str]) -> str:
    return ", ".join(f"{kind} {getattr(config, kind)!r}" for kind in kinds)


def _loaded(config: TrialConfig, data: str | Path) -> Task:
    from polysweep.trainer.tasks.loading import load_task

    return load_task(config, data).few(min(config.batch_size, FEW))


def _stand_in(config: TrialConfig) -> Task:
    """A built-in task without its data, which a plan does not need; convex ones need none."""
    import torch

    from polysweep.trainer.task import DTYPES
    from polysweep.trainer.tasks.classification import Classification
    from polysweep.trainer.tasks.images import Images, Normalisation

    task = component("task", config.task)
    if task.problem:
        return _loaded(config, "")
    channels, height, width = task.input_shape
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (FEW, height, width, channels), generator=generator, dtype=torch.uint8)
    images = Images(noise, torch.arange(FEW) % task.classes)
    normalise = Normalisation(torch.full((channels,), 0.5), torch.ones(channels), 255)
    return Classification(images, None, images, normalise, task.classes).to(
        torch.device("cpu"), DTYPES[config.precision]
    )


def _step(config: TrialConfig, task: Task, rows: int) -> None:
    """One step of a stack of copies, and its measurement."""
    import torch

    from polysweep.trainer.epoch import EpochRunner
    from polysweep.trainer.stack.stack import Stack

    with torch.random.fork_rng(devices=[]):
        stack = Stack([config] * rows, task)
        EpochRunner(stack).rehearse(min(config.batch_size, task.size))
        stack.measure(1)
        stack.tensors()  # what a checkpoint would hold
