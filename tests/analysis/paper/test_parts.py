"""The sweeps of the paper and of its rehearsal."""

from __future__ import annotations

import pytest

from polysweep.analysis.paper.parts import CIFAR, PARTS, SPECS, STAND_IN, STANDS_FOR, Part
from polysweep.trainer.components.plugins import component


def test_a_part_without_changes_is_its_file_so_that_its_trials_are_those_of_the_file() -> None:
    assert CIFAR.spec(is_rehearsal=False).text == (SPECS / "paper-cifar.yaml").read_text()
    assert len({part.spec(is_rehearsal=False).name for part in PARTS}) == len(PARTS)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_the_rehearsal_has_every_method_of_the_real_sweep_and_needs_no_data(part: Part) -> None:
    real, rehearsed = part.spec(is_rehearsal=False), part.spec(is_rehearsal=True)
    assert rehearsed.name == f"rehearsal-{part.name.removeprefix('paper-')}" and rehearsed.seeds == real.seeds

    def rules(spec: object) -> set[tuple[object, ...]]:
        return {
            (trial.config.optimizer, trial.config.scheduler, trial.config.rho, trial.config.weight_decay)
            for trial in spec.trials  # type: ignore[attr-defined]
        }

    assert rules(rehearsed) == rules(real) and len(rehearsed.trials) == len(real.trials)
    assert {trial.trial_id for trial in rehearsed.trials}.isdisjoint(trial.trial_id for trial in real.trials)
    assert not any(component("task", config.task).prepare for config in rehearsed.kinds)
    assert max(config.epochs for config in rehearsed.kinds) <= 40


def test_every_value_of_the_rehearsed_tables_stands_for_one_of_the_papers() -> None:
    parameters = CIFAR.rehearsed
    for field, column in STAND_IN.items():
        assert set(parameters[column]["values"]) == set(STANDS_FOR[field])
    printed = {trial.config.model for trial in CIFAR.spec(is_rehearsal=False).trials}
    assert printed == set(STANDS_FOR["model"].values())
