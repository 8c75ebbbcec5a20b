"""What is measured on held-out images, and which rows survive it."""

from __future__ import annotations

from polysweep.trainer.train import train
from tests.support.training import configs


def test_held_out_images_are_measured() -> None:
    (config,) = configs({"val_fraction": 0.1})
    last = list(train([config]))[-1][0].history
    assert last["val/loss"] > 0 and 0.2 < last["val/top1"] <= last["val/top5"] <= 1


def test_a_loss_on_held_out_images_that_is_not_finite_is_divergence() -> None:
    """The last update may leave weights that are finite and useless: no mean may be taken over that."""
    rows = configs(
        {"scheduler": "constant", "lr": 0.05}, {"scheduler": "constant", "lr": 1e30}, batch_size=1437, epochs=1
    )
    ((healthy, wild),) = list(train(rows))
    assert (healthy.outcome, wild.outcome) == ("finished", "diverged")
    assert wild.history["test/loss"] is None and wild.history["partial"] is True and wild.history["step"] == 1
