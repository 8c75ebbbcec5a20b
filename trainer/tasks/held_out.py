"""What is measured of a classification task: loss and accuracies on the held-out sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from polysweep.trainer.optimizers.optimizer import State
from polysweep.trainer.stack.oracles import ModuleOracle
from polysweep.trainer.task import Measurement, Monitor, Rows
from polysweep.trainer.tasks.images import Images

if TYPE_CHECKING:
    from polysweep.trainer.tasks.classification import Classification

EVALUATION_BATCH: Final = 512


class HeldOutMonitor(Monitor):
    """Evaluates the rows on the validation and the test set, with running statistics; keeps no state.

    A row whose loss there could be infinite or NaN has diverged: no table may average over it. That is decided without
    the labels, so that test labels change nothing that is selected on validation.
    """

    def __init__(self, task: Classification, oracle: ModuleOracle) -> None:
        self._task, self._oracle = task, oracle

    def measure(self, state: State, rows: Rows, active: Tensor, step: int) -> Measurement:  # noqa: ARG002
        """The columns `val/*`, if images are held out, and `test/*`."""
        columns: dict[str, Tensor] = {}
        survives = torch.ones_like(active)
        for split, images in (("val", self._task.val), ("test", self._task.test)):
            if images is not None:
                loss, top1, top5, worst = self._sums(rows, images)
                survives &= worst.isfinite()
                for name, total in (("loss", loss), ("top1", top1), ("top5", top5)):
                    columns[f"{split}/{name}"] = total.double() / len(images)
        return Measurement(columns, survives, state)

    def _sums(self, rows: Rows, data: Images) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Over the images: losses, hits among the first and the first five, and the largest possible losses; (K,)."""
        width = len(rows.theta)
        loss = torch.zeros(width, device=rows.theta.device, dtype=rows.theta.dtype)
        top1, top5, worst = torch.zeros_like(loss), torch.zeros_like(loss), torch.zeros_like(loss)
        for images, labels in data.chunks(EVALUATION_BATCH):
            logits = self._oracle.evaluate(rows, self._task.normalise(images))
            shared = labels.expand(width, -1)
            loss += self._task.losses(logits, shared) * len(labels)
            hits = self._task.hits(logits, shared)
            top1, top5 = top1 + hits[0], top5 + hits[1]
            worst += self._task.worst_loss(logits)
        return loss, top1, top5, worst
