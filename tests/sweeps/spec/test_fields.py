"""The keys of a spec file: what follows from them, and which values none of them takes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from polysweep.sweeps.spec.fields import Launch, Metric, SpecFields
from polysweep.sweeps.spec.parameter import Parameter

RHO, LR, CONSTANT = (
    Parameter(values=[0.1, 0.2]), Parameter(min=0.1, max=1.0), Parameter(value="constant"),
)  # fmt: skip


def test_what_follows_from_a_specs_keys() -> None:
    spec = SpecFields(
        name="s", parameters={"rho": RHO}, variants=[{"scheduler": CONSTANT, "lr": LR}, {"scheduler": CONSTANT}],
        seeds=[5, 7], run_cap=7, program="train.py",
    )  # fmt: skip
    assert spec.space == [{"rho": RHO, "scheduler": CONSTANT, "lr": LR}, {"rho": RHO, "scheduler": CONSTANT}]
    assert spec.written == ("rho", "scheduler", "lr") and spec.ignored == ["program"]
    assert spec.points == 3 and not spec.by_points and spec.launch.device == "cpu"
    assert spec.model_copy(update={"method": "bayes"}).by_points
    assert spec.model_copy(update={"run_cap": None}).points is None
    assert Launch(gpus=0.5).device == "cuda" and Launch(gpus="0.5") == Launch(gpus=0.5)


@pytest.mark.parametrize(
    ("model", "values", "at"),
    [
        (Launch, {"gpus": -0.5}, "gpus"), (Launch, {"gpus": float("inf")}, "gpus"), (Launch, {"gpus": 1e9}, "gpus"),
        (Launch, {"cpus": 0}, "cpus"),
        (Launch, {"probe": ["noise-9"]}, "probe"), (Launch, {"probe": "curvature"}, "probe"),
        (Launch, {"keep": "all"}, "keep"), (Launch, {"gpu": 1}, "gpu"), (Launch, {"max_failures": 1.0}, "max_failures"),
        (Metric, {"name": "test/top1", "goal": "most"}, "goal"),
        (Metric, {"name": "test/top1", "goal": "maximize", "target": float("nan")}, "target"),
        (SpecFields, {"name": "-s", "parameters": {}}, "name"), (SpecFields, {"name": "s"}, "parameters"),
        (SpecFields, {"name": "s" * 65, "parameters": {}}, "name"),
    ],
)  # fmt: skip
def test_a_value_that_a_key_does_not_take_is_refused_there(model: Any, values: dict[str, Any], at: str) -> None:
    with pytest.raises(ValidationError) as caught:
        model(**values)
    assert {error["loc"][0] for error in caught.value.errors()} == {at}


def test_a_metric_knows_its_target_and_what_stands_beside_its_numbers() -> None:
    most = Metric(name="test/top1", goal="maximize", target="0.9")
    assert [most.is_reached(value) for value in (0.89, 0.9, None)] == [False, True, False]
    assert Metric(name="test/loss", goal="minimize", target=0.1).is_reached(0.1)
    assert most.note == " (selected on test)" and Metric(name="val/top1", goal="maximize").note == ""
