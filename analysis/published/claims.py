"""The claims of the paper about its tables, and what our runs say of each. Pure; docs/analysis.md has the rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.statistics import FAILS, HOLDS, NO_RUNS, NOT_SHOWN, UNDECIDED, holm, rarer
from polysweep.sweeps.planning.welch import LEVEL, Difference, difference, p_text, untested

VERDICTS: Final = (HOLDS, FAILS, NOT_SHOWN, UNDECIDED, NO_RUNS)
TUNED_LR: Final = 0.1
RARE: Final = 0.05
"""The share of a trial's steps, and the share of trials, up to which the safeguard is rarely active."""

BEST = "Polyak is the best of its row"
FALLS_OFF = "cosine falls off at the largest radius"
DROPS_LESS = "Polyak drops less than cosine from the smallest to the largest radius"
STEP_SIZE = f"{TUNED_LR} is the best constant step size at every radius"
SAFEGUARD = "the safeguard is rarely active"

Key = tuple[Any, ...]
"""What identifies a published cell: optimizer, model, dataset, weight_decay, rho, scheduler."""
Cell = Mapping[Any, Any]


@dataclass(frozen=True)
class Side:
    """Our cells of one reading of the published ones, by the key of the published cell that each stands beside."""

    reading: str
    selection: Selection
    cells: Mapping[Key, Cell]


@dataclass(frozen=True)
class Claim:
    """A claim about one place of the tables, and what our runs say of it in one reading."""

    claim: str
    where: str
    dataset: str  # of the place
    reading: str
    published: str  # `yes` or `no`: whether the published means themselves say so; `-` if they cannot
    difference: Difference  # above 0 if the claim is true
    tested: tuple[Any, ...]  # the cells behind it: readings that share them are one test
    verdict: str = NOT_SHOWN
    detail: str = ""


def cell_key(cell: Cell) -> Key:
    """What identifies a published cell: optimizer, model, dataset, weight_decay, rho, scheduler."""
    numbers = [
        None if cell[name] is None or pd.isna(cell[name]) else float(cell[name]) for name in ("weight_decay", "rho")
    ]
    return (cell["optimizer"], cell["model"], cell["dataset"], *numbers, cell["scheduler"])


def claims_of(published: Sequence[Cell], sides: Mapping[str, Sequence[Side]]) -> list[Claim]:
    """Every claim at every place of the published tables in each reading; `sides` by the dataset of the place.

    The p values of a claim are Holm's over its rows in all readings, so that the chance that any of its verdicts is
    false is at most 5 %.
    """
    printed = {cell_key(cell): float(cell["test_accuracy_mean"]) for cell in published}
    claims = [
        claim
        for key in dict.fromkeys(key[:5] for key in printed)
        for side in sides[key[2]]
        for claim in _of_row(key, printed, side)
    ]
    for table in dict.fromkeys(key[:4] for key in printed):
        for side in sides[table[2]]:
            claims += _of_table(table, printed, side)
    claims += _safeguards(printed, [side for group in sides.values() for side in group])
    return [
        judged for name in (BEST, FALLS_OFF, DROPS_LESS, STEP_SIZE, SAFEGUARD)
        for judged in _judged([claim for claim in claims if claim.claim == name])
    ]  # fmt: skip


def _judged(claims: Sequence[Claim]) -> Iterator[Claim]:
    """The rows of one claim with their verdicts."""
    tests = {claim.tested: claim.difference.p for claim in claims}
    adjusted = dict(zip(tests, holm(list(tests.values())), strict=True))
    for claim in claims:
        difference, p = claim.difference, adjusted[claim.tested]
        if difference.reason in (UNDECIDED, NO_RUNS):
            yield replace(claim, verdict=difference.reason, detail=claim.detail)
            continue
        verdict = NOT_SHOWN if not p < LEVEL else HOLDS if difference.is_above else FAILS
        yield replace(claim, verdict=verdict, detail=_detail(claim, p))


def _detail(claim: Claim, p: float) -> str:
    difference = claim.difference
    numbers = "" if math.isnan(difference.estimate) else f"{100 * difference.estimate:+.2f}"
    if not math.isnan(difference.low):
        numbers += f" [{100 * difference.low:+.2f}, {100 * difference.high:+.2f}]"
    tested = difference.reason or f"{p_text(p)}, n = {difference.n}"
    rest = ", ".join(part for part in (numbers, tested) if part)
    return f"{claim.detail} {rest}".strip()


def _claim(
    name: str,
    side: Side,
    keys: Sequence[Key],
    length: int,
    in_print: bool | None,
    test: Callable[[list[Cell]], Difference],
) -> Claim:
    """A claim about the cells `keys`, which share their first `length` fields; `test` takes ours in their order."""
    cells = [side.cells[key] for key in keys if key in side.cells]
    if not any(cell["n"] or cell["lost"] or cell["failed"] or cell["leading"] for cell in cells):
        outcome = untested(NO_RUNS)
    elif len(cells) < len(keys):
        outcome = untested("not all of its cells are in the sweep")
    elif any(cell["undecided"] for cell in cells):
        outcome = untested(UNDECIDED)
    else:
        outcome = test(cells)
    tested = (side.selection.metric, *(side.selection.key(cell) for cell in cells), len(keys))
    published = "-" if in_print is None else "yes" if in_print else "no"
    return Claim(name, _place(keys[0][:length]), keys[0][2], side.reading, published, outcome, tested)


def _of_row(row: Key, printed: Mapping[Key, float], side: Side) -> Iterator[Claim]:
    own = (*row, "polyak")
    rivals = [key for key in printed if key[:5] == row and key != own]
    if own in printed and rivals:
        in_print = all(printed[own] > printed[key] for key in rivals)
        yield _claim(BEST, side, [own, *rivals], 5, in_print, lambda c: side.selection.over_all(c[0], c[1:]))


def _of_table(table: Key, printed: Mapping[Key, float], side: Side) -> Iterator[Claim]:
    radii = sorted({key[4] for key in printed if key[:4] == table})
    first, last = radii[0], radii[-1]

    def keys(scheduler: str) -> list[Key]:
        ends = [(*table, rho, scheduler) for rho in (first, last)]
        return ends if first != last and all(key in printed for key in ends) else []

    cosine, polyak = keys("cosine"), keys("polyak")
    if cosine:
        in_print = printed[cosine[0]] > printed[cosine[1]]
        yield _claim(FALLS_OFF, side, cosine, 4, in_print, lambda c: side.selection.difference([c[0]], [c[1]]))
    if cosine and polyak:
        drops = [printed[ends[0]] - printed[ends[1]] for ends in (cosine, polyak)]
        yield _claim(
            DROPS_LESS, side, [*cosine, *polyak], 4, drops[1] < drops[0], lambda c: _less_drop(side.selection, *c)
        )
    constant = [(*table, rho, "constant") for rho in radii if (*table, rho, "constant") in printed]
    if constant:
        claim = _claim(STEP_SIZE, side, constant, 4, None, lambda c: _step_size(side.selection, c))
        chosen = [side.cells[key].get("lr") for key in constant if key in side.cells]
        lrs = ", ".join(f"{lr:g}" for lr in chosen if lr is not None and not pd.isna(lr))
        yield replace(claim, detail=f"chosen: {lrs};" if lrs else "")


def _less_drop(selection: Selection, cosine: Cell, cosine_last: Cell, polyak: Cell, polyak_last: Cell) -> Difference:
    """(cosine at the smallest radius - at the largest) - the same of Polyak."""
    if cosine["n"] and polyak["n"] and not (cosine_last["n"] and polyak_last["n"]):
        return selection.difference([polyak_last], [cosine_last])
    return selection.difference([cosine, polyak_last], [cosine_last, polyak])


def _step_size(selection: Selection, cells: Sequence[Cell]) -> Difference:
    """0.1 against all other step sizes, at every radius: above at all of them, or below at one of them."""
    by_radius = []
    for cell in cells:
        samples = dict(selection.samples.get(selection.cell_key(cell), {}))
        own = samples.pop(f"lr={TUNED_LR}", None)
        if own is None or not samples:
            return untested(f"not every radius has {TUNED_LR} and another step size without diverged seeds")
        ranked = sorted(samples.values(), reverse=True)
        by_radius.append(difference([[own]], [ranked]))
    if any(math.isnan(one.p_above) for one in by_radius):
        return next(one for one in by_radius if math.isnan(one.p_above))
    weakest, worst = max(by_radius, key=lambda one: one.p_above), min(by_radius, key=lambda one: one.p_below)
    below = min(1.0, len(by_radius) * worst.p_below)
    return (worst if below < weakest.p_above else weakest)._replace(p_above=weakest.p_above, p_below=below)


def _safeguards(printed: Mapping[Key, float], sides: Sequence[Side]) -> Iterator[Claim]:
    """By optimizer: in how many of the Polyak trials gamma = 0 held more than 5 % of the steps."""
    side = sides[0]
    for optimizer in dict.fromkeys(key[0] for key in printed if key[5] == "polyak"):
        keys = {key for each in sides for key in each.cells if key in printed and key[0] == optimizer}
        own = {
            side.selection.cell_key(each.cells[key]): each.cells[key]
            for each in sides
            for key in keys
            if key[5] == "polyak" and key in each.cells
        }
        runs = [run for cell in own.values() for run in side.selection.finished_runs(cell)]
        shares = [run["zero_share"] for run in runs if not pd.isna(run.get("zero_share"))]
        often = sum(share > RARE for share in shares)
        outcome = rarer(often, len(shares), RARE) if shares else untested(NO_RUNS if not runs else "not logged")
        counted = f"{often} of {len(shares)} trials have gamma = 0 in more than {RARE:.0%} of their steps"
        detail = f"{counted}; below {RARE:.0%} by"
        yield Claim(
            SAFEGUARD, optimizer, "all", side.reading, "-", outcome, (optimizer,), detail=detail if shares else ""
        )


def _place(key: Sequence[Any]) -> str:
    names = ("", "", "", "wd ", "rho ")
    return " ".join(
        f"{name}{value:g}" if isinstance(value, float) else f"{name}{value}"
        for name, value in zip(names, key, strict=False)
    )
