"""W&B files as specs of ours: what has a meaning is kept to the trial, the rest is said."""

from __future__ import annotations

import pytest
import yaml

from polysweep.sweeps.spec.sweep import flattened, nested
from polysweep.sweeps.spec.translation import translate
from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.foreign import ACCEPTED, CONDITIONAL, FOREIGN, KINDS, SETTINGS
from tests.support.specs import GOOD, parse

WANDB = """\
program: train.py
method: random
name: My sweep
metric: {name: valAccuracy, goal: maximize}
count: 4
parameters:
  dataset: {value: Digits}
  arch: {value: MLP}
  optimizer: {values: [SGD, sam]}
  learning_rate: {distribution: log_uniform_values, min: 1e-3, max: 0.1}
  rho: {values: [0.05, 0.1]}
  hidden_size: {values: [8, 16]}
  n_heads: {values: [1, 2]}
  momentum: {value: null}
  epochs: {value: 2}
"""


def test_a_file_is_translated_with_what_has_no_meaning_as_comments() -> None:
    translation = translate(WANDB, "w.yaml", "w", {"scheduler": "constant", "weight_decay": 0.1})
    spec = parse(translation.text)
    assert (translation.left, spec.name, spec.metric.name) == ([], "My-sweep", "test/top1")
    assert spec.variants[0]["optimizer"].value == "sgd" and "rho" not in spec.variants[0]
    for words in (
        "  task: {value: digits}  # dataset: {value: Digits}",
        "# n_heads: {values: [1, 2]}  # no field or option is like it",
        "# program: train.py  # polysweep has its own trainer",
        "scheduler: {value: constant}  # as told",
        "# momentum: {value: null}  # null gives no value",
        "# count: 4  # the number of trials is run_cap",
    ):
        assert words in translation.text, translation.text


def test_what_is_left_to_do_is_said_above() -> None:
    translation = translate(WANDB.replace("MLP", "resnet18").replace("count: 4\n", ""), "w.yaml", "w", {})
    assert [line for line in translation.text.splitlines() if line.startswith("# To do: ")] == [
        f"# To do: {one}" for one in translation.left
    ]
    assert {one.partition(" ")[0] for one in translation.left} == {"method", "model:", "scheduler:"}
    assert "  # scheduler: {value: ...}  # required: constant, cosine" in translation.text


def test_claims_are_kept_under_our_names() -> None:
    text = """
parameters:
  task: {value: digits}
  model: {value: mlp}
  optimizer: {value: usam}
  radius: {values: [0.1, 0.2]}
  scheduler: {value: polyak}
rename: {radius: rho}
claims: [{better: {radius: 0.1}, than: {radius: 0.2}}]
"""
    translated = parse(translate(text, "w.yaml", "w", {}).text)
    (claim,) = translated.preregistration.claims
    assert str(claim) == "rho=0.1 beats rho=0.2 on test/top1"


@pytest.mark.parametrize("feature", [*ACCEPTED, *FOREIGN])
def test_what_plans_is_the_same_after_its_translation(feature: str) -> None:
    above, parameters, _ = ACCEPTED.get(feature, ("", FOREIGN.get(feature, ""), ""))
    text = f"{above}parameters:\n{KINDS}{parameters}"
    spec = parse(translate(text, "w.yaml", "file", {}).text)
    if feature in ACCEPTED:
        assert [trial.trial_id for trial in spec.trials] == [trial.trial_id for trial in parse(text).trials]


def test_a_spec_of_ours_is_translated_to_itself() -> None:
    again = parse(translate(GOOD, "w.yaml", "file", {}).text)
    assert [trial.trial_id for trial in again.trials] == [trial.trial_id for trial in parse(GOOD).trials]
    assert again.tuned == ["lr"] and len(again.seeds) == 3


@pytest.mark.parametrize("case", CONDITIONAL)
def test_conditional_parameters_become_variants(case: str) -> None:
    kinds, parameters, trials = CONDITIONAL[case]
    entries = {kind: {"value": name} for kind, name in SETTINGS.items()}
    entries |= {kind: yaml.safe_load(entry) for kind, entry in kinds.items()}
    text = yaml.safe_dump({"parameters": {**entries, **yaml.safe_load(parameters)}}, sort_keys=False)
    translation = translate(text, "w.yaml", "w", {})
    assert (translation.left, len(parse(translation.text).trials)) == ([], trials)


def test_no_sweep_file_is_an_error_with_its_line() -> None:
    with pytest.raises(SpecError, match=r"w.yaml:1: a sweep file has a mapping 'parameters', not an empty file"):
        translate("method: grid\n", "w.yaml", "w", {})


def test_options_are_flattened_and_nested() -> None:
    tree = {"model_options": {"hidden": 8, "layers": 2}, "rho": 0.1}
    assert nested(flattened(tree)) == tree


def test_a_metric_that_is_not_measured_is_a_comment_and_a_search_still_asks_for_one() -> None:
    text = f"metric: {{name: reward, goal: maximize}}\nparameters:\n{KINDS}  lr: {{values: [0.1, 0.2]}}\n"
    translation = translate(text, "file", "file", {})
    assert translation.left == []
    remark = "# metric: {name: reward, goal: maximize}  # not measured here; the default is test/top1, maximize"
    assert remark in translation.text.splitlines()
    assert parse(translation.text).metric.name == "test/top1"
    assert translate(f"method: bayes\nrun_cap: 2\n{text}", "file", "file", {}).left == [
        "method 'bayes' requires a 'metric': {name: ..., goal: maximize or minimize}"
    ]


def test_a_search_without_end_or_metric_lacks_both() -> None:
    with pytest.raises(SpecError) as caught:
        parse(f"method: bayes\nparameters:\n{KINDS}  lr: {{min: 0.1, max: 0.2}}\n")
    assert "requires run_cap" in caught.value.shown and "requires a 'metric'" in caught.value.shown


def test_options_that_are_given_whole_and_by_name_are_one_mapping() -> None:
    text = f"parameters:\n{KINDS}  lr: {{value: 0.1}}\n  model_options: {{value: {{hidden: 16}}}}\n"
    text += "  model_options.layers: {values: [1, 2]}\n"
    translation = translate(text, "file", "file", {})
    assert translation.left == [] and [trial.trial_id for trial in parse(translation.text).trials] == [
        trial.trial_id for trial in parse(text).trials
    ]


def test_a_text_that_looks_like_a_number_stays_text() -> None:
    assert "name: '1e4'" in translate(f"name: '1e4'\nparameters:\n{KINDS}  lr: {{value: 0.1}}\n", "f", "f", {}).text


def test_variants_of_a_search_say_how_often_they_are_drawn() -> None:
    kinds = KINDS.replace("{value: sgd}", "{values: [sgd, sam]}")
    text = f"method: random\nrun_cap: 3\nparameters:\n{kinds}  lr: {{value: 0.1}}\n  rho: {{min: 0.1, max: 0.2}}\n"
    assert "; a search draws each equally often" in translate(text, "file", "file", {}).text
