"""Parameters that only some of the listed components read, as variants."""

from __future__ import annotations

import re

import pytest

from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.foreign import CONDITIONAL, KINDS
from tests.support.specs import parse


@pytest.mark.parametrize("case", CONDITIONAL)
def test_the_variants_that_are_printed_plan(case: str) -> None:
    kinds, parameters, trials = CONDITIONAL[case]
    lines = KINDS.splitlines()
    lines = [f"  {kind}: {kinds[kind]}" if (kind := line.split(":")[0].strip()) in kinds else line for line in lines]
    text = "parameters:\n" + "\n".join(lines) + "\n" + parameters
    with pytest.raises(SpecError) as caught:
        parse(text)
    shown = caught.value.shown
    removed = re.search(r"remove (.*) from 'parameters', and paste:", shown)
    assert removed is not None, shown
    for name in removed[1].split(", "):
        option = name.replace("model_options.hidden", "model_options")
        text = re.sub(rf"^  {option}: .*\n", "", text, flags=re.MULTILINE)
    for block in re.findall(r"^(?:rename|variants):\n(?:  .*(?:\n|$))+", shown, flags=re.MULTILINE):
        text += block + "\n"
    assert len(parse(text).trials) == trials


def test_nothing_is_split_where_a_component_is_unknown() -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"parameters:\n{KINDS.replace('{value: sgd}', '{values: [sgd, sam, rmsprop]}')}  rho: {{value: 0.1}}\n")
    assert "variants:" not in caught.value.shown


def test_what_the_variants_mend_is_said_once() -> None:
    kinds = KINDS.replace("{value: sgd}", "{values: [sgd, sam]}").replace(
        "{value: constant}", "{values: [constant, polyak]}"
    )
    with pytest.raises(SpecError) as caught:
        parse(f"parameters:\n{kinds}  rho: {{values: [0.1, 0.2]}}\n  lr: {{values: [0.1, 0.2]}}\n")
    problems = [line for line in caught.value.shown.splitlines() if "does not use it" in line]
    assert [line.rpartition("; ")[2] for line in problems] == ["see the variants below"] * 2
