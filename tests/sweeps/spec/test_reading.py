"""What W&B's format leaves open is filled in, and said."""

from __future__ import annotations

import pytest

from polysweep.sweeps.spec.reading import slug_of
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import SpecError
from tests.support.foreign import ACCEPTED, KINDS
from tests.support.specs import GOOD, parse


@pytest.mark.parametrize("feature", ACCEPTED)
def test_what_wandb_accepts_is_accepted_and_what_is_ignored_is_said(feature: str) -> None:
    above, parameters, note = ACCEPTED[feature]
    spec = parse(f"{above}parameters:\n{KINDS}{parameters}")
    assert spec.trials or spec.method == "bayes"
    assert note in "\n".join(spec.notes) and bool(spec.notes) == bool(note)


def test_a_name_of_any_characters_has_a_slug() -> None:
    names = ["My sweep (v2)", "Größe/lr", "a" * 70, "日本", "..x", "ok.name-1"]
    assert [slug_of(name) for name in names] == ["My-sweep-v2", "Groe-lr", "a" * 64, "", "x", "ok.name-1"]


def test_a_constant_seed_of_bayes_is_its_seeds() -> None:
    above, parameters, _ = ACCEPTED["a seed of bayes"]
    spec = parse(f"{above}parameters:\n{KINDS}{parameters}")
    assert (spec.seeds, {config.seed for config in spec.corners}) == ([42], {42})


def test_a_seed_under_another_name_beside_seeds_is_refused() -> None:
    text = GOOD.replace("epochs:", "random_seed: {value: 1}\n  epochs:") + "rename: {random_seed: seed}\n"
    with pytest.raises(SpecError, match="'seeds' beside the parameter 'seed'"):
        parse(text)


def test_a_count_is_a_run_cap_and_is_kept_in_the_text() -> None:
    drawn = GOOD.replace("grid", "random").replace("{values: [0.1, 0.2]}", "{min: 0.1, max: 0.2}")
    for text in (drawn, f"# a\n---\n  {drawn.replace(chr(10), chr(10) + '  ')}", f"{{{_in_flow(drawn)}}}"):
        spec = SweepSpec.parse(text, "file.yaml", "file", count=6)
        assert (spec.run_cap, len(spec.trials)) == (6, 6)
        again = SweepSpec.parse(spec.text, "file.yaml", "file")
        assert [trial.trial_id for trial in again.trials] == [trial.trial_id for trial in spec.trials]
    with pytest.raises(SpecError, match=r"file.yaml:15: run_cap: 6 beside --count 3: give one of them"):
        SweepSpec.parse(drawn + "run_cap: 6\n", "file.yaml", count=3)
    with pytest.raises(SpecError, match="--count is for method: random and bayes"):
        SweepSpec.parse(GOOD, "file.yaml", count=3)


def _in_flow(text: str) -> str:
    import json

    import yaml

    return json.dumps(yaml.safe_load(text.replace("1e-4", "1.0e-4").replace("1e-2", "0.01")))[1:-1]


def test_a_rename_that_nothing_uses_is_an_error_with_the_names_of_the_file() -> None:
    with pytest.raises(SpecError, match=r"file.yaml:15: rename: 'lrr' is no name in this file; did you mean 'lr'\?"):
        parse(GOOD + "rename: {lrr: lr}\n")
    assert SweepSpec.parse(GOOD + "rename: {lrr: lr}\n", "file.yaml", "file", recorded=True).trials


def test_a_rename_reaches_the_metric_and_what_is_tuned() -> None:
    text = GOOD.replace("test/top1", "my_acc").replace("lr:", "Step:").replace("[lr]", "[Step]")
    spec = parse(text + "rename: {my_acc: test/top1, Step: lr}\n")
    assert (spec.metric.name, spec.tuned) == ("test/top1", ["lr"])
    assert [trial.trial_id for trial in spec.trials] == [trial.trial_id for trial in parse(GOOD).trials]


def test_a_parameter_beside_the_parameters_is_told_where_it_belongs() -> None:
    for key in ("lr: {value: 0.1}", "scheduler: {values: [cosine]}"):
        with pytest.raises(SpecError, match=f"file.yaml:15: '{key.split(':')[0]}' is a parameter; it belongs under"):
            parse(GOOD + f"{key}\n")
