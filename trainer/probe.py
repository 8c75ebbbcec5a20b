"""Whether a user's model can be a row of a stack: asked by trying it on two rows."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from trainer.config import Scalar, TrialConfig
from trainer.plugins import component


def refusal(config: TrialConfig, data: str | Path = "") -> str:
    """Why the config's model cannot be stacked, in a line; empty where it can.

    Two rows make a training pass with gradients and an evaluation under vmap, as `trainer.engine.Vmapped` does.
    """
    task = component("task", config.task)
    shape, classes = task.input_shape, task.classes
    if not shape:
        from trainer.tasks import load_task

        loaded = load_task(config, data)
        shape, classes = loaded.input_shape, loaded.classes
    return _refusal(config.model, tuple(sorted(config.model_options.items())), shape, classes)


@lru_cache(maxsize=64)
def _refusal(model: str, options: tuple[tuple[str, Scalar], ...], shape: tuple[int, ...], classes: int) -> str:
    import torch

    from trainer.engine import Buffers, Vmapped, flatten

    with torch.random.fork_rng(devices=[]):
        module = component("model", model).load()(shape, classes, **dict(options))
        images = torch.randn(2, 2, *shape)
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
    except Exception as error:  # whatever vmap, autograd or the model says
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error) else repr(error)
    return ""
