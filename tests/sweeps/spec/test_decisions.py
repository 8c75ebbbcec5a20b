"""What decisions go by, and what they say."""

from __future__ import annotations

from dataclasses import replace

from polysweep.sweeps.spec.decisions import BETTER, OPEN, Compared, Decisions, Look, by_key, cell_key
from tests.support.replicated_worlds import world_spec


def compared(cells: tuple[str, str], verdict: str) -> Compared:
    return Compared(cells, "polyak", "constant", "rho=0.1", 3, 0.1, 0.0, 0.2, verdict)  # type: ignore[arg-type]


def test_a_cell_goes_by_its_tuning_trials_in_any_order() -> None:
    cells = by_key(world_spec().tuning_trials)
    assert len(cells) == 8
    key, members = next(iter(cells.items()))
    assert cell_key(members[::-1]) == key != cell_key(members[1:]), "another candidate asks again"
    assert cell_key([*members, replace(members[0], trial_id="f" * 16, is_added=True)]) == key


def test_a_look_leaves_the_cells_of_its_open_comparisons_open() -> None:
    look = Look(1, 3, 0.01, {}, 2, (compared(("a", "b"), OPEN), compared(("a", "c"), BETTER)))
    assert look.open_cells == {"a", "b"}
    assert not Decisions() and Decisions(looks=(look,))
