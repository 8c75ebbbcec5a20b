"""Parameters, renamed names and seeds of a spec, read with the line of what is wrong."""

from __future__ import annotations

from tests.support.specs import GOOD, parse


def test_options_can_be_swept_one_by_one_and_tuned() -> None:
    text = GOOD.replace("{value: mlp}", "{value: mlp}\n  model_options: {parameters: {hidden: {values: [8, 9]}}}")
    spec = parse(text.replace("[lr]", "[lr, model_options.hidden]"))
    assert {t.config.model_options["hidden"] for t in spec.trials} == {8, 9}
    assert set(spec.trials[0].cell) == {"rho", "scheduler"}
    assert set(parse(text).trials[0].cell) == {"model_options.hidden", "rho", "scheduler"}


def test_foreign_names_are_renamed_and_what_has_no_sense_is_said() -> None:
    text = GOOD.replace("lr:", "learning_rate:").replace("[lr]", "[learning_rate]")
    text += "rename: {learning_rate: lr}\nprogram: train.py\ncommand: [python]\nproject: mine\ndescription: a test\n"
    spec = parse(text)
    assert [t.trial_id for t in spec.trials] == [t.trial_id for t in parse(GOOD).trials]
    assert (spec.ignored, spec.project, spec.description) == (["program", "command"], "mine", "a test")


def test_seeds_may_be_a_number_a_list_or_a_parameter() -> None:
    assert parse(GOOD.replace("seeds: 3", "seeds: [5, 7]")).seeds == [5, 7]
    swept = GOOD.replace("seeds: 3\n", "").replace("parameters:", "parameters:\n  seed: {values: [3, 4]}")
    assert {t.config.seed for t in parse(swept).trials} == {3, 4}
