"""Sweep specs: what they mean, and what is wrong with a wrong one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.project import ROOT
from tests.support.specs import WRONG, parse


def test_the_quickstart_has_72_trials_in_12_cells() -> None:
    spec = SweepSpec.load(ROOT / "sweeps/specs/quickstart.yaml")
    assert len({t.trial_id for t in spec.trials}) == 72
    assert len(plan(spec, {}).cells()) == 12


@pytest.mark.parametrize("case", list(WRONG))
def test_a_wrong_spec_is_refused_with_file_line_offender_and_valid_choices(case: str) -> None:
    text, line, words = WRONG[case]
    with pytest.raises(SpecError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith(f"file.yaml:{line}: "), message
    assert "\n" not in message
    for word in words:
        assert word in message


def test_the_schema_for_editors_is_that_of_the_model() -> None:
    kept = json.loads(Path(ROOT / "sweeps/spec.schema.json").read_text())
    assert kept == SweepSpec.json_schema(), "run `make schema`"
    assert set(kept["properties"]) == set(SweepSpec.model_fields)
    assert kept["$defs"]["Parameter"]["additionalProperties"] is False
