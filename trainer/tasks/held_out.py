"""What is measured of a task with a test set: loss and metrics on the held-out sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from polysweep.trainer.errors import ConfigError
from polysweep.trainer.optimizers.optimizer import State
from polysweep.trainer.stack.oracles import ModuleOracle
from polysweep.trainer.task import Measurement, Monitor, Rows
from polysweep.trainer.tasks.samples import Samples

if TYPE_CHECKING:
    from polysweep.trainer.tasks.supervised import WithTestSet

EVALUATION_BATCH: Final = 512


def outputs_in_chunks(
    task: WithTestSet, oracle: ModuleOracle, rows: Rows, samples: Samples
) -> Iterator[tuple[Tensor, Tensor]]:
    """What the rows give for all samples, and the targets, in order and in chunks: (K, b, ...) each."""
    for inputs, targets in samples.chunks(EVALUATION_BATCH):
        yield oracle.evaluate(rows, task.inputs(inputs)), targets.expand(len(rows.theta), *targets.shape)


class HeldOutMonitor(Monitor):
    """Evaluates the rows on the validation and the test set, with running statistics; keeps no state.

    A row whose loss there could be infinite or NaN has diverged: no table may average over it. That is decided without
    the targets, so that those of the test set change nothing that is selected on validation.
    """

    def __init__(self, task: WithTestSet, oracle: ModuleOracle) -> None:
        self._task, self._oracle = task, oracle

    def measure(self, state: State, rows: Rows, active: Tensor, step: int) -> Measurement:  # noqa: ARG002
        """The columns `val/*`, if something is held out, and `test/*`."""
        columns: dict[str, Tensor] = {}
        survives = torch.ones_like(active)
        for split, samples in (("val", self._task.val), ("test", self._task.test)):
            if samples is not None:
                totals, worst, outputs = self._evaluate(rows, samples)
                survives &= worst.isfinite()
                means = self._task.means(totals, len(samples))
                columns |= {f"{split}/{name}": mean for name, mean in means.items()}
                if self._task.metrics:
                    columns |= self._metrics(split, torch.cat(outputs, dim=1), samples)
        return Measurement(columns, survives, state)

    def _evaluate(self, rows: Rows, samples: Samples) -> tuple[dict[str, Tensor], Tensor, list[Tensor]]:
        """Over the samples: the task's sums, (K, ...) each, what tells whether a row is sound, (K,), and the outputs.

        The outputs are kept only if a metric needs them.
        """
        totals: dict[str, Tensor] = {}
        worst = torch.zeros(len(rows.theta), device=rows.theta.device, dtype=rows.theta.dtype)
        kept = []
        for outputs, targets in outputs_in_chunks(self._task, self._oracle, rows, samples):
            sums = self._task.sums(outputs, targets)
            totals = {name: totals.get(name, torch.zeros_like(value)) + value for name, value in sums.items()}
            worst = worst + self._task.worst(outputs)
            if self._task.metrics:
                kept.append(outputs)
        return totals, worst, kept

    def _metrics(self, split: str, outputs: Tensor, samples: Samples) -> dict[str, Tensor]:
        """The metrics of the rows' outputs (K, N, ...) by column, (K,) each."""
        targets = samples.targets if samples.rows is None else samples.targets[samples.rows]
        columns = {}
        for name, metric in self._task.metrics.items():
            values = [torch.as_tensor(metric(self._task.shaped(row, targets), targets)) for row in outputs]
            if values[0].numel() != 1:
                shape = tuple(values[0].shape)
                raise ConfigError("task", f"metric {name!r} gives a tensor of shape {shape}, expected one number")
            columns[f"{split}/{name}"] = torch.stack([value.double().view(()) for value in values]).to(outputs.device)
        return columns
