"""Layouts of tables: which fields of the cells go down, which across, and which make a table each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from polysweep.analysis.data.frames import names_of, to_python
from polysweep.analysis.tables.selection import TABLE_KEYS, Selection, format_value
from polysweep.analysis.tables.wording import shortened
from polysweep.trainer.errors import UserError, expected

LABEL_NOISE: Final = "label_noise"


@dataclass(frozen=True)
class Layout:
    """Which fields of the cells are rows, columns, and one table each. `by` holds all others that vary."""

    rows: tuple[str, ...]
    cols: tuple[str, ...]
    by: tuple[str, ...]

    @classmethod
    def of(
        cls,
        selection: Selection,
        rows: str | Sequence[str] | None = None,
        cols: str | Sequence[str] | None = None,
        by: str | Sequence[str] | None = None,
    ) -> Layout:
        """The paper's by default: radii down, schedulers across, one table per choice of everything else that varies.

        A text is one field. Fields that vary and are not named make more tables: nothing is averaged over. Raises
        `UserError` for a field that tells no cells apart, and for one that is named twice.
        """
        varying = [*TABLE_KEYS, *selection.varying]
        reasons = _known(selection)
        down, across, apart = names_of(rows), names_of(cols), names_of(by)
        seen: dict[str, str] = {}
        for option, names in (("--rows", down), ("--cols", across), ("--by", apart)):
            for name in names:
                require_varying(selection, name, option)
                if name in seen:
                    raise UserError(f"{option}: {name!r} is in {seen[name]} already")
                seen[name] = option
        default_rows, default_cols = (tuple([key] if key not in seen else []) for key in TABLE_KEYS)
        down, across = down or default_rows, across or default_cols
        rest = [name for name in varying if name not in (*down, *across, *apart) and name in reasons]
        return cls(down, across, (*apart, *rest))

    @classmethod
    def of_tables(cls, selection: Selection) -> Layout:
        """That of printed tables if none is asked for: the default, with label noise that varies down too.

        Before the radius or behind it as in the spec, which is the order of the cells.
        """
        down = [name for name in selection.varying if name == LABEL_NOISE and name in _known(selection)]
        in_spec = [*selection.pulled.protocol.cell]
        return cls.of(selection, sorted(["rho", *down], key=lambda name: name in in_spec and in_spec.index(name)))


def _known(selection: Selection) -> list[str]:
    """The fields that some cell has."""
    varying = [*TABLE_KEYS, *selection.varying]
    return [name for name in varying if name in selection.cells and selection.cells[name].notna().any()]


def require_varying(selection: Selection, name: str, option: str) -> None:
    """Raise `UserError` with what a field is instead where it does not tell cells apart."""
    if name in (*TABLE_KEYS, *selection.varying):
        return
    runs, protocol = selection.pulled.runs, selection.pulled.protocol
    values = list(dict.fromkeys(map(format_value, to_python(runs[name])))) if name in runs else []
    if name in protocol.tuned:
        what = f"{name!r} is tuned: each cell has its chosen value"
    elif name == "seed":
        what = "'seed' is what the means are over"
    elif len(values) == 1:
        what = f"{name!r} does not vary: it is {shortened(values[0])} in every trial"
    elif name in runs:
        what = f"{name!r} tells no cells apart"
    else:
        what = f"unknown field {name!r}"
    raise UserError(f"{option}: {what}; {expected(name, _known(selection))}")


def subtables(selection: Selection, layout: Layout | None = None) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """One frame of cells per choice of the fields `by`.

    A cell to which such a field does not apply (gamma_b, to a constant step size) stands in each of its tables.
    """
    layout = layout or Layout.of(selection)
    groups = _groups(selection, layout)
    hosts = {group.key: [other for other in groups if _goes_with(group.key, other.key)] for group in groups}
    guests = [group for group in groups if _is_guest(group, hosts[group.key])]
    for group in groups:
        if group in guests:
            continue
        rows = [*group.rows, *(row for guest in guests if group in hosts[guest.key] for row in guest.rows)]
        absent = "-" if hosts[group.key] else None  # a table beside those in which its fields have values says so
        values = {name: absent if value is None else value for name, value in zip(layout.by, group.key, strict=True)}
        yield {name: value for name, value in values.items() if value is not None}, selection.cells.iloc[sorted(rows)]


@dataclass
class _Group:
    """The cells that have the same values of the fields `by`, None where a field does not apply."""

    key: tuple[Any, ...]
    rows: list[int]  # of `selection.cells`
    places: set[tuple[tuple[str, ...], tuple[str, ...]]]  # in the table: row and column


def _groups(selection: Selection, layout: Layout) -> list[_Group]:
    """All groups, in the order of their first cells."""
    groups: dict[tuple[Any, ...], _Group] = {}
    for row, cell in enumerate(selection.cells.to_dict("records")):
        key = tuple(None if format_value(cell[name]) == "-" else cell[name] for name in layout.by)
        group = groups.setdefault(key, _Group(key, [], set()))
        group.rows.append(row)
        group.places.add((key_of(cell, layout.rows), key_of(cell, layout.cols)))
    return list(groups.values())


def _is_guest(group: _Group, hosts: Sequence[_Group]) -> bool:
    """Whether the cells of a group stand in the tables of its hosts.

    A group that would stand where a host has a cell of its own is another variant: it has a table to itself.
    """
    return bool(hosts) and not any(group.places & host.places for host in hosts)


def _goes_with(key: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether `other` says the same where `key` says something, and more."""
    return key != other and all(mine is None or mine == theirs for mine, theirs in zip(key, other, strict=True))


def require_one_table(cells: pd.DataFrame, down: Sequence[str], layout: Layout) -> None:
    """Raise `UserError` with the fields that differ where two cells stand in one row and column."""
    first: dict[tuple[str, ...], Mapping[Any, Any]] = {}
    for cell in cells.to_dict("records"):
        place = key_of(cell, (*down, *layout.cols))
        other = first.setdefault(place, cell)
        if other is not cell:
            pairs = [(name, format_value(other[name]), format_value(cell[name])) for name in layout.by]
            differ = [f"{name}={one} and {two}" for name, one, two in pairs if one != two]
            where = " ".join(f"{n}={v}" for n, v in zip((*down, *layout.cols), place, strict=True))
            raise UserError(
                f"cells of several tables: two are {where}, with {', '.join(differ) or 'all fields the same'}; "
                "take one table at a time (polysweep.subtables), or name these fields as rows or cols"
            )


def key_of(cell: Mapping[Any, Any], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(format_value(cell[name]) for name in names)
