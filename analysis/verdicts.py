"""The claims of the paper about its tables, and what our runs say of each: it holds, fails, or cannot be told. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from analysis.select import Selection, shown
from analysis.stats import Comparison, compare_means

HOLDS, FAILS, FEW = "holds", "fails", "not enough runs"
TUNED_LR: Final = 0.1


@dataclass(frozen=True)
class Claim:
    """A claim about one place of the tables, and what our runs say of it, by metric."""

    claim: str
    where: str
    published: str  # `yes` or `no`: whether the published means themselves say so
    verdicts: Mapping[str, str]
    details: Mapping[str, str]
    has_runs: bool  # whether a seed of any of its cells has ended here

    @property
    def overall(self) -> str:
        """Holds only where it does for every metric, and fails where it fails for any."""
        found = set(self.verdicts.values())
        if FAILS in found:
            return FAILS
        return HOLDS if found == {HOLDS} and len(self.verdicts) > 1 else FEW  # never on top-1 or top-5 alone


def cell_key(cell: Mapping[Any, Any]) -> tuple[Any, ...]:
    """What identifies a published cell: optimizer, model, dataset, weight_decay, rho, scheduler."""
    numbers = [
        None if cell[name] is None or pd.isna(cell[name]) else float(cell[name]) for name in ("weight_decay", "rho")
    ]
    return (cell["optimizer"], cell["model"], cell["dataset"], *numbers, cell["scheduler"])


@dataclass(frozen=True)
class _Ours:
    """Our cells of one metric."""

    selection: Selection
    cells: Mapping[tuple[Any, ...], Mapping[Any, Any]]

    def values(self, key: tuple[Any, ...]) -> dict[Any, float]:
        cell = self.cells.get(key)
        return {} if cell is None else self.selection.by_seed.get(self.selection.key(cell), {})

    def tried(self, key: tuple[Any, ...], name: str) -> set[float]:
        """The values of a tuned field among the candidates of a cell."""
        cell, candidates = self.cells.get(key), self.selection.candidates
        if cell is None or name not in candidates:
            return set()
        own = self.selection.key(cell)
        rows = candidates[["rho", "scheduler", *self.selection.varying, name]].to_dict("records")
        return {float(row[name]) for row in rows if shown(row[name]) != "-" and self.selection.key(row) == own}

    def is_lost(self, key: tuple[Any, ...]) -> bool:
        """Whether every seed of a cell has diverged."""
        cell = self.cells.get(key)
        return cell is not None and not cell["n"] and cell["diverged"] == cell["seeds"]


def verdict(found: Comparison) -> str:
    """`holds` where the difference is positive and shown at the level 0.05, `fails` where negative and shown."""
    if not found.is_shown:
        return FEW
    return HOLDS if found.difference > 0 else FAILS


def claims_of(
    theirs: Sequence[Mapping[Any, Any]],
    ours: Mapping[str, Mapping[tuple[Any, ...], Mapping[Any, Any]]],
    selections: Mapping[str, Selection],
) -> list[Claim]:
    """Every claim at every place of the published tables; `ours` by metric and by `cell_key`."""
    printed = {cell_key(cell): float(cell["test_accuracy_mean"]) for cell in theirs}
    sides = {name: _Ours(selections[name], cells) for name, cells in ours.items()}
    rows = list(dict.fromkeys(key[:5] for key in printed))
    tables = list(dict.fromkeys(key[:4] for key in printed))
    claims = []
    for row in rows:
        rivals = [key for key in printed if key[:5] == row and key[5] != "polyak"]
        if (*row, "polyak") in printed and rivals:
            claims.append(_best_in_row(row, rivals, printed, sides))
    for table in tables:
        radii = sorted({key[4] for key in printed if key[:4] == table})
        ends = (radii[0], radii[-1])
        has = {s: all((*table, rho, s) in printed for rho in ends) for s in ("cosine", "polyak", "constant")}
        if ends[0] != ends[1] and has["cosine"]:
            claims.append(_falls_off(table, ends, printed, sides))
            if has["polyak"]:
                claims.append(_holds_up(table, ends, printed, sides))
        if has["constant"]:
            claims.append(_step_size(table, radii, sides))
    return claims


def _claim(
    claim: str,
    keys: Sequence[tuple[Any, ...]],
    length: int,
    published: bool | None,
    found: Mapping[str, tuple[str, str]],
    sides: Mapping[str, _Ours],
) -> Claim:
    """A claim about the cells `keys`, which share their first `length` fields."""
    said = "-" if published is None else "yes" if published else "no"
    has_runs = any(side.values(key) or side.is_lost(key) for side in sides.values() for key in keys)
    verdicts, details = ({name: both[at] for name, both in found.items()} for at in (0, 1))
    return Claim(claim, _place(keys[0][:length]), said, verdicts, details, has_runs)


def _best_in_row(
    row: tuple[Any, ...], rivals: Sequence[tuple[Any, ...]], printed: Mapping[Any, float], sides: Mapping[str, _Ours]
) -> Claim:
    own = (*row, "polyak")
    found = {}
    for name, side in sides.items():
        verdicts = {key[5]: _beats(side, own, key) for key in rivals}
        kinds = {kind for kind, _ in verdicts.values()}
        kind = FAILS if FAILS in kinds else FEW if FEW in kinds else HOLDS
        found[name] = (kind, "; ".join(f"over {scheduler} {text}" for scheduler, (_, text) in verdicts.items()))
    said = all(printed[own] > printed[key] for key in rivals)
    return _claim("Polyak is the best of its row", [own, *rivals], 5, said, found, sides)


def _beats(side: _Ours, own: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[str, str]:
    if side.is_lost(own):
        if side.is_lost(other):
            return FEW, "all seeds of both diverged"
        return (FAILS, "all seeds of Polyak diverged") if side.values(other) else (FEW, "(no value)")
    if side.is_lost(other):
        return (HOLDS, "all its seeds diverged") if len(side.values(own)) > 1 else (FEW, "no two seeds of Polyak")
    return _tested(compare_means(side.values(own), side.values(other)))


def _falls_off(
    table: tuple[Any, ...], ends: tuple[float, float], printed: Mapping[Any, float], sides: Mapping[str, _Ours]
) -> Claim:
    first, last = (*table, ends[0], "cosine"), (*table, ends[1], "cosine")
    found = {}
    for name, side in sides.items():
        if side.is_lost(last) and len(side.values(first)) > 1:
            found[name] = (HOLDS, "all seeds diverged at the largest radius")
        else:
            found[name] = _tested(compare_means(side.values(first), side.values(last)))
    said = printed[first] > printed[last]
    return _claim("cosine falls off at the largest radius", [first, last], 4, said, found, sides)


def _holds_up(
    table: tuple[Any, ...], ends: tuple[float, float], printed: Mapping[Any, float], sides: Mapping[str, _Ours]
) -> Claim:
    def key(rho: float, scheduler: str) -> tuple[Any, ...]:
        return (*table, rho, scheduler)

    found = {}
    for name, side in sides.items():
        drops = {s: _drops(side.values(key(ends[0], s)), side.values(key(ends[1], s))) for s in ("cosine", "polyak")}
        lost = {s: side.is_lost(key(ends[1], s)) for s in ("cosine", "polyak")}
        if lost["polyak"] and (lost["cosine"] or not drops["cosine"]):
            found[name] = (FEW, "all seeds of Polyak diverged at the largest radius, and cosine is no better known")
        elif lost["polyak"]:
            found[name] = (FAILS, "all seeds of Polyak diverged at the largest radius")
        elif lost["cosine"] and len(drops["polyak"]) > 1:
            found[name] = (HOLDS, "all seeds of cosine diverged at the largest radius")
        else:
            found[name] = _tested(compare_means(drops["cosine"], drops["polyak"]))
    fell = {s: printed[key(ends[0], s)] - printed[key(ends[1], s)] for s in ("cosine", "polyak")}
    claim = "Polyak drops less than cosine from the smallest to the largest radius"
    keys = [key(rho, scheduler) for rho in ends for scheduler in ("cosine", "polyak")]
    return _claim(claim, keys, 4, fell["polyak"] < fell["cosine"], found, sides)


def _drops(first: Mapping[Any, float], last: Mapping[Any, float]) -> dict[Any, float]:
    return {seed: first[seed] - last[seed] for seed in first if seed in last}


def _step_size(table: tuple[Any, ...], radii: Iterable[float], sides: Mapping[str, _Ours]) -> Claim:
    found = {}
    keys = [(*table, rho, "constant") for rho in radii]
    for name, side in sides.items():
        cells = [side.cells.get(key) for key in keys]
        pairs = zip(keys, cells, strict=True)
        if not all(cell is not None and cell["n"] > 1 and side.tried(key, "lr") > {TUNED_LR} for key, cell in pairs):
            found[name] = (FEW, f"not every radius has two seeds of {TUNED_LR} and of another step size")
        elif any(cell["ties"] for cell in cells if cell is not None):
            found[name] = (FEW, "step sizes are tied")
        else:
            chosen = [float(cell["lr"]) for cell in cells if cell is not None]
            kind = HOLDS if all(lr == TUNED_LR for lr in chosen) else FAILS
            found[name] = (kind, f"chosen: {', '.join(f'{lr:g}' for lr in chosen)}")
    return _claim("0.1 is the best constant step size at every radius", keys, 4, None, found, sides)


def _tested(found: Comparison) -> tuple[str, str]:
    if math.isnan(found.p):
        return FEW, f"({found.test})"
    return verdict(found), f"{100 * found.difference:+.2f}, {found.test} {found.p_text}, n = {found.n}"


def _place(key: Sequence[Any]) -> str:
    names = ("", "", "", "wd ", "rho ")
    return " ".join(
        f"{name}{value:g}" if isinstance(value, float) else f"{name}{value}"
        for name, value in zip(names, key, strict=False)
    )
