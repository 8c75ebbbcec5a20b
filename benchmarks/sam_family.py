"""The SAM family and the step sizes after Polyak's beside a plain NumPy twin, and beside published classes.

Softmax regression on the digits: the largest difference over all steps and two rows with other options, relative to
the largest entry of x. The published classes are of packages that are taken if they are installed (`pip install
--no-deps momo-opt pytorch-optimizer`); all parameters are one tensor, as some of their norms are by tensor, and norms
of the second package are in float32.

    python benchmarks/sam_family.py [--steps N]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.family_runs import COMBINATIONS, differences, one, rows  # noqa: E402
from tests.support.stacks import mini_batches, stack_of  # noqa: E402

LR, RHO = 0.1, 0.1
Theirs = Callable[[Tensor, Callable[[], Tensor]], Callable[[], Any]]
"""From a parameter and a closure, which goes backward and returns the loss, what takes a step after a first pass."""


def two_steps(module: Any, name: str, **options: Any) -> Theirs:
    """A class of `pytorch_optimizer` that wraps SGD."""

    def begin(x: Tensor, closure: Callable[[], Tensor]) -> Callable[[], Any]:
        optimizer = getattr(module, name)([x], torch.optim.SGD, lr=LR, rho=RHO, **options)
        return lambda: optimizer.step(closure)

    return begin


def gsam(module: Any) -> Theirs:
    """GSAM, whose radius comes from a scheduler."""

    class Radius:
        def step(self) -> float:
            return RHO

    def begin(x: Tensor, closure: Callable[[], Tensor]) -> Callable[[], Any]:
        optimizer = module.GSAM([x], torch.optim.SGD([x], lr=LR), nn.Module(), Radius(), alpha=0.4)
        return lambda: optimizer.step(lambda: (None, closure()))

    return begin


def momo(module: Any, **options: Any) -> Theirs:
    """MoMo, of which one pass is a step."""

    def begin(x: Tensor, closure: Callable[[], Tensor]) -> Callable[[], Any]:
        optimizer = module.Momo([x], lb=0.01, **options)
        return lambda: optimizer.step(closure)

    return begin


def published() -> Iterator[tuple[str, dict[str, Any], Theirs]]:
    """The name of a class that is installed, our fields, and theirs."""
    with suppress(ImportError):
        library = import_module("pytorch_optimizer")
        radius = {"rho": RHO}
        yield "SAM", {"optimizer": "sam", **radius}, two_steps(library, "SAM")
        asam = {"optimizer": "asam", **radius, "optimizer_options": {"eta": 0.0}}
        yield "SAM(adaptive=True)", asam, two_steps(library, "SAM", adaptive=True)
        yield "GSAM", {"optimizer": "gsam", **radius}, gsam(library)
        yield "FriendlySAM, m begins as theirs", {"optimizer": "f-sam", **radius}, two_steps(library, "FriendlySAM")
        yield "LookSAM", {"optimizer": "looksam", **radius}, two_steps(library, "LookSAM", k=5)
    with suppress(ImportError):
        library = import_module("momo")
        fields = {"optimizer": "sgd", "scheduler": "momo", "lower_bound": 0.01}
        yield "Momo", fields, momo(library)
        yield (
            "Momo(beta=0.5, lr=0.3)",
            {**fields, "lr": 0.3, "scheduler_options": {"beta": 0.5}},
            momo(library, beta=0.5, lr=0.3),
        )


def from_published(fields: dict[str, Any], theirs: Theirs, steps: int, precision: str) -> float:
    """The largest difference from a published class."""
    lr = {} if "scheduler" in fields else {"lr": LR}
    scheduled = {"scheduler": "constant", "lr": None, **lr, **fields}
    stack = stack_of(one(scheduled.pop("optimizer"), weight_decay=0.0, precision=precision, epochs=50, **scheduled))
    x = nn.Parameter(stack.theta[0].clone())
    batch: list[Tensor] = []

    def closure() -> Tensor:
        x.grad = None
        images, labels = batch
        with torch.enable_grad():
            loss = F.cross_entropy(images.flatten(1) @ x[:640].view(10, 64).T + x[640:], labels)
            loss.backward()
        return loss

    take_step, largest = theirs(x, closure), 0.0
    for (_, step, images, labels), _ in zip(mini_batches(stack, epochs=50), range(steps), strict=False):
        batch[:] = images[0], labels[0]
        closure()
        take_step()
        at_x = stack.step(images, labels, step).result.x
        if step == 0 and "m" in stack.optimizer_state:
            stack.optimizer_state["m"] = at_x.grad
        off = (stack.theta[0] - x.detach()).abs().max() / x.detach().abs().max()
        largest = max(largest, float(off))
    return largest


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    steps: int = parser.parse_args().steps
    epochs = steps // 23 + 1  # 23 mini-batches of 64
    precisions = ("float64", "float32")
    table = Table("optimizer", "scheduler", *precisions, title=f"from the NumPy twin, {steps} steps")
    for optimizer, scheduler in COMBINATIONS:
        pairs = (rows(optimizer, scheduler, precision=precision, epochs=epochs) for precision in precisions)
        table.add_row(optimizer, scheduler, *(f"{max(differences(pair, steps)):.0e}" for pair in pairs))
    theirs = Table("published class", *precisions, title=f"from published classes, {steps} steps")
    for name, fields, steps_of in published():
        offs = (from_published(fields, steps_of, steps, precision) for precision in precisions)
        theirs.add_row(name, *(f"{off:.0e}" for off in offs))
    console = Console(width=100)
    console.print(table)
    console.print(theirs if theirs.row_count else "none of the published packages is installed")


if __name__ == "__main__":
    main()
