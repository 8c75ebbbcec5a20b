"""What is known of a part before it is imported."""

from __future__ import annotations

import pytest

from polysweep.trainer.components.component import REQUIRED
from polysweep.trainer.components.registry import OPTIMIZERS
from polysweep.trainer.errors import ConfigError


def test_an_optimizer_on_a_base_reads_what_that_base_reads() -> None:
    sam = OPTIMIZERS["sam"]
    assert sam.on(None) is sam.on("sgd") is sam
    assert sam.on("sgdw").uses["momentum"] is REQUIRED and "momentum" not in sam.on("adam").uses
    assert sam.on("adam").family == sam.on("adamw").family != sam.family == sam.on("sgdw").family
    assert OPTIMIZERS["adam"].on("adamw") is OPTIMIZERS["adam"], "whether a field is read at all is asked elsewhere"
    with pytest.raises(ConfigError, match="base: unknown base 'sdg'; did you mean 'sgd'"):
        sam.on("sdg")
