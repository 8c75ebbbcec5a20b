"""Whether the claims of a spec can be answered by its sweep: fields, values, metric and unit, each at its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.preregistration import Claim, is_same, unit_problem
from polysweep.sweeps.spec.sweep import SweepTrial, by_cell
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source
from polysweep.trainer.components.plugins import component, metrics_of
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import expected
from polysweep.trainer.text import brief

SIDES: Final = ("better", "than")
Refuse = Callable[[KeyPath, str], Exception]
"""Makes the error for a key of a claim."""


def check_claims(
    spec: SpecFields,
    claims: Sequence[Claim],
    trials: Sequence[SweepTrial],
    configs: Iterable[TrialConfig],
    where: Source,
) -> None:
    """Raise `SpecError` for the first claim that this sweep cannot answer.

    `trials` are all of the sweep's, or one of each cell; `configs` are one of each kind.
    """
    cells = [members[0].cell for members in by_cell(trials)]
    fields = trials[0].cell_fields if trials else ()
    configs = list(configs)
    for index, claim in enumerate(claims):

        def refuse(path: KeyPath, reason: str, index: int = index) -> Exception:
            return where.error(("claims", index, *path), f"claims: {reason}")

        if claim in claims[:index]:
            raise refuse((), f"given twice: {brief(str(claim))}")
        _check_fields(spec, claim, fields, refuse)
        _check_metric(spec, claim, configs, refuse)
        if problem := unit_problem(claim.by, claim.metric):
            raise refuse(("by",), problem)
        _check_cells(claim, cells, refuse)


def require_known_cells(spec: SpecFields, key: str, where: Source) -> None:
    """Raise `SpecError` if bayes has still to propose the cells: whatever it searches must be tuned."""
    searched = {
        name
        for space in spec.space
        for name, parameter in space.items()
        if name not in (*spec.tuned, "seed") and (parameter.grid is None or len(parameter.grid) > 1)
    }
    if searched:
        names = ", ".join(sorted(searched))
        raise where.error(
            (key,),
            f"{key}: with method bayes the cells are known before the runs only if all that is searched is in "
            f"'tuned'; add {names}",
        )


def _check_fields(spec: SpecFields, claim: Claim, fields: Sequence[str], refuse: Refuse) -> None:
    """Whether both sides name the same fields, and every field tells cells apart."""
    if claim.better.keys() != claim.than.keys():
        names = [brief(", ".join(getattr(claim, side))) for side in SIDES]
        raise refuse(("than",), f"'better' is about {names[0]}, 'than' about {names[1]}; name the same fields in both")
    if claim.better == claim.than:
        raise refuse(("than",), "'better' and 'than' are the same cells")
    for side in (*SIDES, "over"):
        for name in getattr(claim, side):
            if name in spec.tuned:
                raise refuse((side, name), f"{name!r} is tuned: a claim is about cells, after the choice in each")
            if name not in fields:
                choices = expected(name, fields) if fields else "there is one cell only"
                raise refuse((side, name), f"{brief(name)} does not tell cells apart; {choices}")
    if twice := sorted(claim.over.keys() & claim.better.keys()):
        raise refuse(("over", twice[0]), f"{twice[0]!r} is in 'over' and in 'better'; give it once")


def _check_metric(spec: SpecFields, claim: Claim, configs: Iterable[TrialConfig], refuse: Refuse) -> None:
    """Whether every trial measures the metric."""
    for config in configs:
        logged = metrics_of(component("task", config.task))
        if claim.metric not in logged:
            task = f"task {config.task!r} does not log {brief(claim.metric)}"
            raise refuse(("metric",), f"{task}; {expected(claim.metric, logged)}")
        if claim.metric.startswith("val/") and spec.protocol and spec.protocol.retrain:
            raise refuse(("metric",), f"metric {claim.metric!r} is not measured by retrained trials")
        if claim.metric.startswith("val/") and not config.val_fraction:
            raise refuse(("metric",), f"metric {claim.metric!r} requires val_fraction > 0: no data is held out")


def _check_cells(claim: Claim, cells: Sequence[Mapping[str, Any]], refuse: Refuse) -> None:
    """Whether the sweep has cells of both sides, and for every value of `over`."""
    for side in SIDES:
        for name, value in getattr(claim, side).items():
            if problem := missing_value(name, value, cells):
                raise refuse((side, name), f"no cell has {problem}")
    pairs = claim.model_copy(update={"over": {}}).pairs(cells)
    compared = [cells[place] for pair in pairs for place in pair]
    if not compared:
        raise refuse((), f"no two cells of this sweep are compared by it: {brief(str(claim))}")
    for name, values in claim.over.items():
        for value in values:
            if problem := missing_value(name, value, compared):
                raise refuse(("over", name), f"no cell that is compared has {problem}")
    if not list(claim.pairs(cells)):
        raise refuse(("over",), f"no two cells of this sweep are compared by it: {brief(str(claim))}")


def missing_value(name: str, value: Any, cells: Iterable[Mapping[str, Any]]) -> str:
    """`name=value`, with the values that there are, if no cell has it; else empty."""
    present = list(dict.fromkeys(cell[name] for cell in cells if name in cell))
    if any(is_same(one, value) for one in present):
        return ""
    if isinstance(value, str) and value in map(str, present):
        return f"the text {value!r} as {name}: write the {type(present[0]).__name__} {value} without quotes"
    choices = expected(value if isinstance(value, str) else "", list(map(str, present)))
    return f"{name}={brief(value)}; {choices}"
