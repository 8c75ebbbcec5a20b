"""A scheduler of a user's own that always breaks: its trials fail."""

from __future__ import annotations

from polysweep import REQUIRED, declare
from polysweep.trainer.schedulers.cosine import Constant


@declare(uses={"lr": REQUIRED})
class Breaking(Constant):
    """Raises in its second epoch."""

    def start_epoch(self, epoch: int) -> None:
        if epoch == 1:
            raise RuntimeError("it broke")
