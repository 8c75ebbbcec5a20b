"""The paper's models."""

from __future__ import annotations

import torch

from polysweep.trainer.models import resnet20, resnet32


def test_the_papers_models_have_the_papers_sizes() -> None:
    """He et al. 2016, table 6: 0.27 M and 0.46 M."""
    counts = [sum(p.numel() for p in build((3, 32, 32), 10).parameters()) for build in (resnet20, resnet32)]
    assert counts == [269_722, 464_154]
    assert resnet20((3, 32, 32), 100)(torch.zeros(2, 3, 32, 32)).shape == (2, 100)
