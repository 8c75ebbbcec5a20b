"""What a scheduler is asked to do comes before the training ends, and is said once."""

from __future__ import annotations

from typing import Any

import pytest

from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import ConfigError
from tests.support.project import TINY

BASE = {**TINY, "optimizer": "sgd", "rho": None, "lr": 0.1, "epochs": 10}


@pytest.mark.parametrize(
    ("scheduler", "options", "key", "message"),
    [
        ("step", {}, "step_size", "missing; scheduler 'step' needs it"),
        ("step", {"step_size": 10}, "step_size", "10 is not below epochs = 10: the step size would never fall"),
        ("step", {"step_size": 3, "gamma": 1}, "gamma", "less than 1 (got 1)"),
        ("step", {"step_size": 3, "gamma": 0}, "gamma", "greater than 0 (got 0)"),
        ("multistep", {"milestones": [6, 3]}, "milestones", "must increase, but 3 comes after 6 (got [6, 3])"),
        ("multistep", {"milestones": [3, 3]}, "milestones", "must increase, but 3 comes after 3"),
        ("multistep", {"milestones": [3, 12]}, "milestones", "12 is not below epochs = 10"),
        ("multistep", {"milestones": 3}, "milestones", "valid list (got 3)"),
        ("multistep", {"milestones": []}, "milestones", "at least 1 item"),
        ("multistep", {"milestones": [0, 3]}, "milestones.0", "greater than or equal to 1 (got 0)"),
        ("warmup-cosine", {}, "warmup_epochs", "missing"),
        ("warmup-cosine", {"warmup_epochs": 10}, "warmup_epochs", "before the step size has reached lr"),
        ("warmup-cosine", {"warmup_epochs": 0, "start_factor": 0.1}, "", "start_factor: nothing is warmed up"),
        ("one-cycle", {"max_lr": 0.1}, "", "scheduler 'one-cycle' has no option 'max_lr'; its options: pct_start, div"),
        ("one-cycle", {"pct_start": 1}, "pct_start", "less than 1"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named(scheduler: str, options: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrialConfig.parse({**BASE, "scheduler": scheduler, "scheduler_options": options})
    assert caught.value.key == (f"scheduler_options.{key}" if key else "scheduler_options")
    assert message in str(caught.value)


def test_a_warm_up_with_a_cosine_that_rises_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lr_min: 0.2 is not below lr = 0.1"):
        TrialConfig.parse(
            {**BASE, "scheduler": "warmup-cosine", "lr_min": 0.2, "scheduler_options": {"warmup_epochs": 1}}
        )


def test_a_list_of_milestones_is_one_trial_however_it_is_written() -> None:
    ids = {
        TrialConfig.parse({**BASE, "scheduler": "multistep", "scheduler_options": options}).trial_id
        for options in ({"milestones": [3, 6]}, {"milestones": (3.0, 6), "gamma": 0.1})
    }
    assert len(ids) == 1
