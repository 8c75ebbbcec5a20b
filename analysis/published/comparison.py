"""Published numbers beside ours, cell by cell. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from polysweep.analysis.data.display import Displayed
from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.published.cells import KEYS, TOP1, TOP5, Published, Reading
from polysweep.analysis.published.claims import VERDICTS, Claim, Key, Side, cell_key, claims_of
from polysweep.analysis.tables.choice import select
from polysweep.analysis.tables.mean_std import cell_text
from polysweep.analysis.tables.selection import Selection
from polysweep.sweeps.planning.welch import Sample, untested
from polysweep.trainer.errors import UserError, expected

TABLE: Final = ("optimizer", "model", "dataset", "weight_decay")


class NothingToCompareError(UserError):
    """No published cell is among ours."""


@dataclass(frozen=True, repr=False)
class Compared(Displayed):
    """`cells`: per published cell by reading our mean, std, n, and the difference with its interval. `claims`."""

    published: Published
    name: str
    readings: tuple[str, ...]
    cells: pd.DataFrame
    claims: tuple[Claim, ...]
    selected_on: str

    def headline(self) -> str:
        """`made beside cifar: 12 of 192 published cells have runs here`."""
        cells = f"{self.with_runs} of {len(self.cells)} published cells"
        return f"{self.name} beside {self.published.name}: {cells} have runs here"

    def overview(self) -> pd.DataFrame:
        """The verdicts: `summary` as a frame."""
        return pd.DataFrame(self.summary())

    @property
    def with_runs(self) -> int:
        """Published cells of which a seed has finished here."""
        counts = self.cells[[f"{name} n" for name in self.readings if name in (TOP1.name, TOP5.name)]]
        return int((counts > 0).any(axis=1).sum())

    def summary(self) -> list[dict[str, Any]]:
        """By claim, dataset and reading how often each verdict falls, and how often the published means say it."""
        groups: dict[tuple[str, str, str], list[Claim]] = {}
        for one in self.claims:
            groups.setdefault((one.claim, one.dataset, one.reading), []).append(one)
        return [
            {"claim": claim, "dataset": dataset, "reading": reading, "published": _in_print(group),
             "verdicts": _tally(Counter(one.verdict for one in group))}
            for (claim, dataset, reading), group in groups.items()
        ]  # fmt: skip


def _in_print(claims: Sequence[Claim]) -> str:
    """In how many places the published means say so; `-` for what they cannot say."""
    answers = [claim.published for claim in claims if claim.published != "-"]
    return f"{answers.count('yes')} of {len(answers)}" if answers else "-"


def _tally(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def compare(
    pulled: RunSet, published: Published, *, epoch: str | None = None, where: Mapping[str, str] | None = None
) -> Compared:
    """Every published cell beside ours.

    difference = ours - published with Welch's 95 % interval of it (`statistics.difference`, which accounts for the
    choice among our candidates), in percent. Each reading is chosen by itself: the epoch and the tuned parameters by
    the top-1 or the top-5 of the set by which the sweep selects. `where` picks cells by other fields that vary, such as
    `{"gamma_b": "1.0"}`.

    Raises `UserError` if no cell matches, if several match one published cell, and for an unknown field.
    """
    printed = published.cells.to_dict("records")
    readings = {
        name: [one for one in published.readings.get(name, (TOP1,)) if one.metric in pulled.logged]
        for name in dict.fromkeys(cell["dataset"] for cell in printed)
    }
    metrics = dict.fromkeys(one.metric for group in readings.values() for one in group)
    if not metrics:
        logged = ", ".join(sorted(pulled.logged)) or "none"
        raise UserError(f"{pulled.protocol.name}: no test/top1 was logged; there are: {logged}")
    selections = {metric: _selection(pulled, metric, epoch) for metric in metrics}
    listed = {cell_key(cell) for cell in printed}
    ours = {metric: _by_key(selection, where or {}, listed) for metric, selection in selections.items()}
    first = next(iter(ours.values()))
    if not any(cell_key(cell) in first for cell in printed):
        kinds = {tuple(str(key[at]) for at in (0, 1, 2)) for key in first}
        published_kinds = {tuple(str(cell[name]) for name in KEYS[:3]) for cell in printed}
        raise NothingToCompareError(
            f"--published {published.name}: none of its cells is in {pulled.protocol.name}, which has "
            f"{'; '.join(' '.join(kind) for kind in sorted(kinds))}; published are "
            f"{'; '.join(' '.join(kind) for kind in sorted(published_kinds))}"
        )
    sides = {
        dataset: [
            Side(one.name, selections[one.metric], _standing_for(ours[one.metric], dataset, one)) for one in group
        ]
        for dataset, group in readings.items()
    }
    names = tuple(dict.fromkeys(side.reading for group in sides.values() for side in group))
    rows = [{**cell, **_beside(cell, sides[cell["dataset"]], names)} for cell in printed]
    selected_on = next(iter(selections.values())).selected_on
    claims = tuple(claims_of(printed, sides))
    return Compared(published, pulled.protocol.name, names, pd.DataFrame(rows), claims, selected_on)


def _standing_for(cells: Mapping[Any, Any], dataset: str, reading: Reading) -> dict[Any, Any]:
    """Our cells of the dataset that a reading takes, by the key that they would have as cells of `dataset`."""
    taken = reading.dataset or dataset
    return {(*key[:2], dataset, *key[3:]): cell for key, cell in cells.items() if key[2] == taken}


def _selection(pulled: RunSet, metric: str, epoch: str | None) -> Selection:
    split, _, kind = pulled.protocol.metric.partition("/")
    own = f"{split}/{metric.rpartition('/')[2]}"
    is_free = kind.startswith("top") and own in pulled.logged and not pulled.protocol.roles
    return select(pulled, metric=metric, epoch=epoch, by=own if is_free else None)


def _by_key(selection: Selection, where: Mapping[str, str], listed: set[Key]) -> dict[Key, Mapping[Any, Any]]:
    """Our cells by what identifies a published one."""
    cells = selection.cells
    others = [name for name in selection.varying if name not in (*TABLE, "task")]
    for name, value in where.items():
        if name not in others:
            raise UserError(f"--where: {name!r} does not vary beside the published fields; {expected(name, others)}")
        keep = cells[name].isna() | (cells[name].astype(str) == value)
        if not (cells[name].astype(str) == value).any():
            raise UserError(
                f"--where: no cell has {name}={value}; {expected(value, cells[name].dropna().astype(str).unique())}"
            )
        cells = cells[keep]
    key_of = _published_key(selection)
    by_key: dict[Key, Mapping[Any, Any]] = {}
    for cell in cells.to_dict("records"):
        key = key_of(cell)
        if key in by_key and key in listed:
            vary = {name: sorted({str(value) for value in selection.cells[name].dropna()}) for name in others}
            choices = "; ".join(f"{name}: {', '.join(values)}" for name, values in vary.items() if len(values) > 1)
            raise UserError(
                f"several cells of {selection.pulled.protocol.name} match one published cell; "
                f"--where picks among {choices}"
            )
        by_key[key] = cell
    return by_key


def _beside(published: Mapping[Any, Any], sides: Sequence[Side], names: Sequence[str]) -> dict[str, Any]:
    """The columns of a published cell: by reading our number and the difference, `-` where the reading is not its."""
    row: dict[str, Any] = {}
    theirs = Sample(published["test_accuracy_mean"] / 100, published["test_accuracy_std"] / 100, published["n"])
    by_name = {side.reading: side for side in sides}
    for name in names:
        side = by_name.get(name)
        cell = side.cells.get(cell_key(published)) if side else None
        gap = untested("no run")
        if side and cell is not None and cell["n"] and not cell["undecided"]:
            gap = side.selection.tested([side.selection.samples_of(cell)], [[theirs]])
        row |= {
            f"{name} mean": math.nan if cell is None else 100 * cell["mean"],
            f"{name} std": math.nan if cell is None else 100 * cell["std"],
            f"{name} n": 0 if cell is None else int(cell["n"]),
            f"{name} text": _text(side, cell),
            f"{name} difference": 100 * gap.estimate,
            f"{name} low": 100 * gap.low,
            f"{name} high": 100 * gap.high,
        }
    cells = [side.cells[cell_key(published)] for side in sides if cell_key(published) in side.cells]
    row["selected"] = cells[0]["selected"] if cells else ""
    return row


def _text(side: Side | None, cell: Mapping[Any, Any] | None) -> str:
    if side is None:
        return "-"
    return "no run" if cell is None else cell_text(cell, side.selection.metric)


def _published_key(selection: Selection) -> Callable[[Mapping[Any, Any]], Key]:
    """By a row of `cells` the key of the published cell that it stands beside."""
    fixed = selection.of_all_runs

    def key(cell: Mapping[Any, Any]) -> Key:
        values = {**fixed, **{name: cell[name] for name in fixed if name in cell}}
        return cell_key({**values, "dataset": values["task"], "rho": cell["rho"], "scheduler": cell["scheduler"]})

    return key


def published_of(published: Published, selection: Selection) -> Callable[[pd.DataFrame], pd.DataFrame | None]:
    """For figures: of a table's cells the published ones, as rho, scheduler, mean, std; None for none.

    Raises `UserError` if no table has any.
    """
    key_of = _published_key(selection)
    theirs = published.cells.rename(columns={"test_accuracy_mean": "mean", "test_accuracy_std": "std"})
    theirs["table_key"] = [cell_key(cell)[:4] for cell in theirs.to_dict("records")]

    def table_keys(cells: pd.DataFrame) -> set[Key]:
        return {key_of(cell)[:4] for cell in cells.to_dict("records")}

    if table_keys(selection.cells).isdisjoint(theirs["table_key"]):
        raise NothingToCompareError(
            f"--published {published.name}: none of its tables is in {selection.pulled.protocol.name}"
        )

    def find(cells: pd.DataFrame) -> pd.DataFrame | None:
        keys = table_keys(cells)
        there = theirs.loc[theirs["table_key"].isin(keys), ["rho", "scheduler", "mean", "std"]]
        return there.reset_index(drop=True) if len(keys) == 1 and len(there) else None

    return find
