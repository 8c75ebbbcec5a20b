"""What the relatives of SAM cannot be trained with."""

from __future__ import annotations

from typing import Any

import pytest

from polysweep.trainer.errors import ConfigError
from tests.support.family_runs import one


@pytest.mark.parametrize(
    ("optimizer", "changes", "message"),
    [
        ("asam", {"optimizer_options": {"eta": -1}}, "optimizer_options.eta: Input should be greater than or equal"),
        ("gsam", {"optimizer_options": {"beta": 1}}, "optimizer 'gsam' has no option 'beta'; its options: alpha"),
        ("f-sam", {"optimizer_options": {"beta": 1.0}}, "optimizer_options.beta: Input should be less than 1"),
        ("looksam", {"optimizer_options": {"every": 0}}, "optimizer_options.every: Input should be greater than or"),
        ("looksam", {"batchnorm_statistics": "both"}, "batchnorm_statistics: 'both' is not for optimizer 'looksam'"),
        ("looksam", {"rho": 0.0}, "rho: 0: optimizer 'looksam' would follow rounding errors; take 'sgd'"),
        ("asam", {"base": "adamw"}, "base: optimizer 'asam' does not use it"),
        ("esam", {"task": "ridge", "model": "linear", "model_options": {}, "batch_size": 10},
         "optimizer: 'esam' chooses by the losses of samples, which task 'ridge' has not; expected digits, cifar10"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(optimizer: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        one(optimizer, **{"rho": 0.1, **changes})
    assert message in str(caught.value) and "\n" not in str(caught.value)
