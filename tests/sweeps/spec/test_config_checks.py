"""Every component, value and combination that cannot be, by line, without what follows from it."""

from __future__ import annotations

import pytest

from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.specs import GOOD, parse


@pytest.mark.parametrize(
    ("before", "after", "problems"),
    [
        ("{values: [0.1, 0.2]}", "{values: [-1, -2, 0.1]}", ["7: rho: Input should be greater than or equal to 0"]),
        (
            "{value: mlp}", "{values: [mlp, vgg, vit]}",
            ["5: model: unknown model 'vgg'", "5: model: unknown model 'vit'"],
        ),
        (
            "epochs: {value: 2}", "epochs: {values: [0, 2]}\n  batch_size: {value: 9999}",
            ["9: epochs: Input should be greater", "10: batch_size: 9999 is larger than the 1437 training images"],
        ),
        (
            "  rho: {values: [0.1, 0.2]}\n", "  lr_min: {value: 0.1}\n",
            ["7: lr_min: scheduler 'constant' does not use it", "7: lr_min: scheduler 'polyak' does not use it",
             "11: rho: missing; optimizer 'usam' needs it", "12: rho: missing; optimizer 'usam' needs it"],
        ),
        (
            "{name: test/top1, goal: maximize}", "{name: val/top1, goal: most}",
            ["2: metric.goal: Input should be 'maximize' or 'minimize'"],
        ),
    ],
)  # fmt: skip
def test_configs_are_checked_to_the_end(before: str, after: str, problems: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        parse(GOOD.replace(before, after))
    lines = [
        line for line in caught.value.shown.splitlines() if line.startswith("file.yaml:") and "problems" not in line
    ]
    assert len(lines) == len(problems), "\n".join(lines)
    assert all(line.startswith(f"file.yaml:{one}") for line, one in zip(lines, problems, strict=True)), "\n".join(lines)
