"""The spec that `polysweep replicate` makes of the one that was launched."""

from __future__ import annotations

import pytest

from polysweep.sweeps.commands.options import compared_field, whole_numbers
from polysweep.sweeps.commands.replicate import LOOKS, replicated
from polysweep.trainer.errors import UserError

TEXT = """# a comment
parameters:
  task: {value: digits}
  model: {value: mlp}
  optimizer: {value: usam}
  scheduler: {values: [constant, cosine]}
  rho: {values: [0.1, 0.2]}
  lr: {value: 0.1}
  lr_min: {value: 0.01}
  epochs: {value: 1}
"""
PLAIN = TEXT.replace("  scheduler: {values: [constant, cosine]}\n", "  scheduler: {value: polyak}\n").replace(
    "  lr: {value: 0.1}\n  lr_min: {value: 0.01}\n", ""
)
TUNED = PLAIN.replace("rho: {values: [0.1, 0.2]}", "rho: {values: [0.1, 0.2]}\n  gamma_b: {values: [0.5, 1.0]}") + (
    "tuned: [gamma_b]\nseeds: 3\n"
)


def test_a_replication_joins_the_spec_and_nothing_else_changes() -> None:
    spec = replicated("made", PLAIN + "seeds: 3\n", {"compare": "rho", "margin": "1 points"}, None)
    assert spec.replicate is not None and spec.replicate.looks == LOOKS and spec.replicate.field == "rho"
    assert (spec.name, spec.seeds, spec.protocol) == ("made", [0, 1, 2], None)
    assert spec.text.startswith("# The spec as launched")


def test_reporting_seeds_make_a_protocol_of_its_seeds() -> None:
    spec = replicated("made", TUNED, {"compare": "rho"}, [5, 6, 7])
    assert spec.protocol is not None and (spec.protocol.tune_on, spec.protocol.report_on) == ([0, 1, 2], [5, 6, 7])
    assert spec.seeds == [0, 1, 2]


def test_a_spec_with_a_replication_goes_on_as_it_is() -> None:
    text = PLAIN + "seeds: 3\nreplicate: {compare: rho, looks: [3, 4]}\n"
    spec = replicated("made", text, {"compare": None}, None)
    assert spec.text == text
    with pytest.raises(UserError, match="--compare, --max-trials: the spec of made as launched has a 'replicate'"):
        replicated("made", text, {"compare": "rho", "max_trials": 9, "level": None}, None)


@pytest.mark.parametrize(
    ("text", "asked", "report_on", "words"),
    [
        (PLAIN, {}, None, "--compare: missing, and the spec of made as launched has no 'replicate'"),
        (PLAIN, {"looks": [3]}, None, "--compare: missing; the field whose values are compared"),
        (TUNED, {"compare": "rho"}, None, "cell rho=0.1 has 2 candidates"),
        (TUNED, {"compare": "rho"}, [2, 3, 4], "also in tune_on: 2;"),
        (TUNED.replace("seeds: 3", "protocol: {tune_on: [0], report_on: [1]}"), {"compare": "rho"}, [2], "--report-on"),
        (PLAIN + "seeds: 5\n", {"compare": "rho"}, None, "the first is at 3 seeds, but every cell has 5"),
    ],
)
def test_what_it_cannot_do_is_said(
    text: str, asked: dict[str, object], report_on: list[int] | None, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        replicated("made", text, asked, report_on)
    assert words in str(caught.value)


def test_its_options() -> None:
    assert whole_numbers("--looks", "3, 5,10") == [3, 5, 10] and whole_numbers("--looks", None) is None
    for text in ("", "3,,5", "3;5", "-1", "3.0", "\u0663"):
        with pytest.raises(UserError, match=r"^--looks: "):
            whole_numbers("--looks", text)
    assert compared_field("scheduler") == "scheduler" and compared_field(None) is None
    assert compared_field("rho=0.1,0.2") == {"rho": [0.1, 0.2]}
    assert compared_field("scheduler=constant, polyak") == {"scheduler": ["constant", "polyak"]}
