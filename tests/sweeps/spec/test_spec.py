"""Sweep specs and plans: what they mean, and what is wrong with a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from polysweep.sweeps.planning.plan import plan
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import SpecError, read_settings
from polysweep.sweeps.store.states import TrialState
from polysweep.trainer.errors import UserError
from tests.support.project import ROOT
from tests.support.specs import GOOD, WRONG, parse


def test_a_spec_expands_in_the_order_in_which_it_is_written() -> None:
    spec = parse(GOOD)
    assert spec.name == "file"
    trials = spec.trials
    assert len(trials) == len({t.trial_id for t in trials}) == 2 * 2 * 3 + 2 * 3
    assert [t.config.seed for t in trials[:3]] == [0, 1, 2]
    assert [(t.config.rho, t.config.lr) for t in trials[:12:3]] == [
        (0.1, 0.01),
        (0.1, 0.1),
        (0.2, 0.01),
        (0.2, 0.1),
    ]
    assert [dict(t.cell) for t in trials[::6]] == [
        {"rho": 0.1, "scheduler": "constant"},
        {"rho": 0.2, "scheduler": "constant"},
        {"rho": 0.1, "scheduler": "polyak"},
    ]
    assert trials[0].config.weight_decay == 1e-4


def test_the_quickstart_has_72_trials_in_12_cells() -> None:
    spec = SweepSpec.load(ROOT / "sweeps/specs/quickstart.yaml")
    assert len({t.trial_id for t in spec.trials}) == 72
    assert len(plan(spec, {}).cells()) == 12


def test_cells_are_told_apart_by_what_varies_where_it_applies() -> None:
    caps = GOOD.replace("{scheduler: {value: polyak}}", "{scheduler: {value: polyak}, gamma_b: {values: [0.1, 1]}}")
    assert set(parse(caps).trials[-1].cell) == {"rho", "scheduler", "gamma_b"}
    one_cap = GOOD.replace("{scheduler: {value: polyak}}", "{scheduler: {value: polyak}, gamma_b: {value: 1}}")
    assert set(parse(one_cap).trials[-1].cell) == {"rho", "scheduler"}


def test_options_tell_cells_apart_where_they_apply() -> None:
    two = GOOD.replace(
        "model: {value: mlp}", "model: {value: mlp}\n  model_options: {values: [{hidden: 8}, {hidden: 9}]}"
    )
    assert parse(two).trials[0].cell["model_options.hidden"] == 8
    models = GOOD.replace("{value: mlp}", "{values: [mlp, resnet8]}")
    assert [dict(t.cell) for t in parse(models).trials[::18]] == [
        {"model": "mlp", "rho": 0.1, "scheduler": "constant"},
        {"model": "resnet8", "rho": 0.2, "scheduler": "constant"},
    ]  # fmt: skip


def test_seeds_may_be_a_number_a_list_or_a_parameter() -> None:
    assert parse(GOOD.replace("seeds: 3", "seeds: [5, 7]")).seeds == [5, 7]
    swept = GOOD.replace("seeds: 3\n", "").replace("parameters:", "parameters:\n  seed: {values: [3, 4]}")
    assert {t.config.seed for t in parse(swept).trials} == {3, 4}


def test_the_same_trial_in_another_sweep_has_the_same_id() -> None:
    wider = GOOD.replace("[0.1, 0.2]", "[0.3, 0.2]").replace("seeds: 3", "name: other\nseeds: 5")
    shared = {t.trial_id for t in parse(GOOD).trials} & {t.trial_id for t in parse(wider).trials}
    assert len(shared) == 9


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


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: no such file"):
        SweepSpec.load(tmp_path / "nowhere.yaml")


def test_settings_of_the_command_line_read_like_a_spec() -> None:
    assert read_settings(["rho=1e-4", "model=mlp", "model_options.hidden=8"]) == {
        "rho": 1e-4,
        "model": "mlp",
        "model_options": {"hidden": 8},
    }
    for wrong in (["rho"], ["=3"], ["rho=1", "rho=2"], ["rho=["]):
        with pytest.raises(UserError):
            read_settings(wrong)


# Plans.


def test_a_plan_groups_rows_of_one_signature_width_and_epoch() -> None:
    spec = parse(GOOD + "launch: {stack: 4}\n")
    ids = [t.trial_id for t in spec.trials]
    known = {
        ids[0]: TrialState("finished", 4, 2),
        ids[1]: TrialState("interrupted", 4, 1),
        ids[2]: TrialState("interrupted", 2, 1),
        ids[3]: TrialState("running", 4, 1, "host (pid 1)"),
        ids[4]: TrialState("failed", 4, 1),
    }
    made = plan(spec, known)
    assert [(stack.width, stack.epoch, len(stack.trials)) for stack in made.stacks] == [
        (4, 1, 1), (2, 1, 1), (4, 0, 4), (4, 0, 4), (4, 0, 4), (4, 0, 1),
    ]  # fmt: skip
    assert made.counts() == {
        "trials": 18, "new": 13, "interrupted": 2, "running": 1, "finished": 1, "diverged": 0, "failed": 1,
        "stopped": 0,
    }  # fmt: skip


def test_the_width_of_a_new_trial_does_not_depend_on_how_many_are_left() -> None:
    spec = parse(GOOD)
    done = {t.trial_id: TrialState("finished", 8, 2) for t in spec.trials[:-1]}
    (stack,) = plan(spec, done).stacks
    (first, *_) = plan(spec, {}).stacks
    assert (stack.width, len(stack.trials)) == (first.width, 1)


def test_different_signatures_never_share_a_stack() -> None:
    spec = parse(
        GOOD.replace("optimizer: {value: usam}", "optimizer: {values: [usam, sam]}\n  batch_size: {values: [64, 128]}")
    )
    for stack in plan(spec, {}).stacks:
        assert len({t.config.signature for t in stack.trials}) == 1
    assert any(len({t.config.optimizer for t in stack.trials}) == 2 for stack in plan(spec, {}).stacks)
