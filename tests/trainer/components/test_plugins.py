"""The user's own parts: the examples of docs/extending.md, versions, and every way to get one wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from polysweep.trainer.components import plugins
from polysweep.trainer.errors import ConfigError
from polysweep.trainer.passes import LossAndGrad
from polysweep.trainer.schedulers.scheduler import StepContext, StepSizes
from polysweep.trainer.train import train
from tests.support.lab import lab as lab
from tests.support.lab import own
from tests.support.results import records

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_the_documented_parts_are_swept_without_touching_the_package(
    lab: Path, launch_here: Run, run_here: Run
) -> None:
    """As stacks of two; alone they are in the tests below."""
    with (lab / "mine.yaml").open("a") as spec:
        spec.write("launch: {stack: 2}\n")
    answer = launch_here("mine.yaml", "--store", "store")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "mine: 8 finished" in answer.stdout
    assert {record["width"] for record in records(lab / "store").values()} == {2}
    table = run_here("table", "mine", "--store", "store").stdout
    assert "my_lab.rules:DecSPS" in table.splitlines()[2]
    assert "nothing to start" in run_here("launch", "mine.yaml", "--store", "store", "--wandb", "disabled").stdout


def test_the_documented_scheduler_agrees_with_its_formula(lab: Path) -> None:
    config = own(scheduler="my_lab.rules:DecSPS", scheduler_options={"c0": 2.0}, gamma_b=0.8, rho=0.1)
    rule = StepSizes([config], torch.device("cpu"), torch.float64)
    state, random = rule.init(), np.random.default_rng(0)
    reach = 2.0 * 0.8
    for t in range(20):
        loss, grad, ascent = random.normal(), random.normal(size=3), random.normal(size=3)
        at_e = [torch.tensor(np.array([v])) for v in (loss, grad, grad)]
        seen = StepContext(LossAndGrad(*at_e), torch.tensor(np.array([ascent])), torch.tensor(t), at_e[1])
        gamma, state = rule.gamma(seen, state)
        c = 2.0 * (t + 1) ** 0.5
        excess = loss - grad @ ascent
        reach = min(excess / (grad @ grad), reach) if excess > 0 else reach
        expected = reach / c if excess > 0 else 0
        assert gamma.value.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("width", [1, 3])
def test_what_a_rule_remembers_is_in_the_checkpoint(lab: Path, width: int) -> None:
    """Continued bitwise: DecSPS remembers a step size, ASAM here a velocity."""
    rows = [
        own(scheduler="my_lab.rules:DecSPS", optimizer="my_lab.asam:ASAM", momentum=0.5, seed=n, model="resnet8")
        for n in range(width)
    ]
    whole = list(train(rows))
    first = next(train(rows))
    saved = [report.checkpoint() for report in first]
    assert "my_lab.rules:DecSPS/reach" in saved[0]["row"]
    rest = list(train(rows, checkpoints=saved))
    for row in range(width):
        a, b = whole[-1][row].checkpoint()["row"], rest[-1][row].checkpoint()["row"]
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_declared_version_is_part_of_the_id(lab: Path) -> None:
    before = own(scheduler="my_lab.rules:DecSPS").trial_id
    assert own(scheduler="my_lab.rules:DecSPS").trial_id == before
    path = lab / "my_lab" / "rules.py"
    path.write_text(path.read_text().replace("version=1", "version=2"))
    del sys.modules["my_lab.rules"]
    plugins._own.cache_clear()
    assert own(scheduler="my_lab.rules:DecSPS").trial_id != before


def test_an_entry_point_gives_a_short_name(lab: Path) -> None:
    info = lab / "my_lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[polysweep.schedulers]\ndec-sps = my_lab.rules:DecSPS\n")
    plugins._entry_points.cache_clear()
    try:
        assert own(scheduler="dec-sps").gamma_b == 1.0
        with pytest.raises(ConfigError, match="did you mean 'dec-sps'"):
            own(scheduler="dec-spss")
    finally:
        plugins._entry_points.cache_clear()


@pytest.mark.parametrize(
    ("field", "name", "message"),
    [
        ("scheduler", "no_such_module:Rule", "cannot import no_such_module: ModuleNotFoundError"),
        ("scheduler", "no_import:Rule", "cannot import no_import: ModuleNotFoundError: No module named 'nothing_of"),
        ("scheduler", "broken:Rule", "broken has no Rule"),
        ("scheduler", "broken:Halving", r"lacks start_epoch\(\), gamma\(\)"),
        ("scheduler", "broken:Unwritten", r"lacks gamma\(\)"),
        ("optimizer", "broken:Halving", r"lacks update\(\)"),
        ("optimizer", "broken:OldNames", r"defines propose\(\), which is now called update\(\)"),
        ("model", "broken:number", "is a int; a model is a class or a function"),
        ("model", "broken:wrong_field", "declares the use of 'learning_rate'"),
        ("model", "broken:", "is not an import path"),
        (
            "model",
            "misdeclared:f",
            r"misdeclared: ConfigError: declare\(version=...\): Input should be a valid",
        ),
        (
            "model",
            "broken:garbage",
            "has an attribute polysweep that is not from polysweep.declare",
        ),
        ("model", "resnet9", "did you mean 'resnet8'"),
    ],
)
def test_a_part_that_cannot_be_used_is_named_with_the_reason(lab: Path, field: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        own(**{field: name})
    assert raised.value.key == field


def test_a_mistake_in_a_spec_is_one_line_with_file_and_line(lab: Path, run_here: Run) -> None:
    path = lab / "mine.yaml"
    path.write_text(path.read_text().replace("my_lab.asam:ASAM", "my_lab.asam:Asam"))
    answer = run_here("launch", "mine.yaml", "--store", "store")
    assert answer.returncode == 2
    assert answer.stderr.strip().splitlines() == [answer.stderr.strip()]
    assert answer.stderr.startswith("error: mine.yaml:5: optimizer: 'my_lab.asam:Asam': my_lab.asam has no Asam")


def test_the_documented_wraps_take_steps(lab: Path) -> None:
    """What the authors publish, by its own name and with a field under another one."""
    usam = own(optimizer="my_lab.theirs:USAM", scheduler="own", rho=0.1, lower_bound=0.01)
    ours = own(optimizer="usam", scheduler="polyak", rho=0.1, lower_bound=0.01)
    a, b = (next(iter(train([one])))[0].history for one in (usam, ours))
    assert a["train/loss"] == pytest.approx(b["train/loss"], rel=1e-4)
    amsgrad = own(optimizer="my_lab.theirs:AMSGrad", scheduler="constant", lr=0.01, rho=None)
    assert amsgrad.versions["optimizer"] == 2 and list(train([amsgrad]))[-1][0].outcome == "finished"
