"""Published numbers beside ours, cell by cell. Pure but for reading the CSV."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from analysis.frames import Pulled, plain
from analysis.select import Selection, select
from analysis.stats import z_score
from analysis.tables import PUBLISHED_COLUMNS, cell_text
from analysis.verdicts import FAILS, FEW, HOLDS, Claim, cell_key, claims_of
from trainer.registry import UserError, expected

FOLDER: Final = Path(__file__).with_name("published")
KEYS: Final = ("optimizer", "model", "dataset", "weight_decay", "rho", "scheduler")
TABLE: Final = ("optimizer", "model", "dataset", "weight_decay")
NUMBERS: Final = ("weight_decay", "rho", "test_accuracy_mean", "test_accuracy_std")
CAUTIONS: Final = (
    "The paper says top-1, but its CIFAR-100 numbers fit top-5 (a ResNet-32 has about 70 % top-1 and 91 % top-5), and "
    "they fit CIFAR-10 top-1 too: a claim counts as reproduced only where it holds for top-1 and for top-5.",
    "The published value is that of the best test epoch, which is selected on the test set; a held-out protocol is "
    "expected to score lower.",
)


class NothingToCompareError(UserError):
    """No published cell is among ours."""


@dataclass(frozen=True)
class Published:
    """Published cells: `cells` has the columns of the CSV and `n`, the seeds behind each mean."""

    name: str
    cells: pd.DataFrame
    cautions: tuple[str, ...] = ()  # what has to be known of them

    @property
    def seeds(self) -> str:
        """`3`, or several."""
        return " or ".join(str(n) for n in sorted(set(self.cells["n"])))


@dataclass(frozen=True)
class Compared:
    """`cells`: per published cell by metric our mean, std, n, difference and z. `claims`: the verdicts."""

    published: Published
    name: str
    metrics: tuple[str, ...]
    cells: pd.DataFrame
    claims: tuple[Claim, ...]
    selected_on: str

    @property
    def with_runs(self) -> int:
        """Published cells of which a seed has finished here."""
        return int((self.cells[f"{self.metrics[0]} n"] > 0).sum())

    def summary(self) -> list[dict[str, Any]]:
        """By claim how often it holds, fails, or cannot be told, and in how many places the published means say it."""
        rows = []
        for claim in dict.fromkeys(one.claim for one in self.claims):
            group = [one for one in self.claims if one.claim == claim]
            counts = {
                name: Counter(one.verdicts[name] for one in group) if name else Counter(one.overall for one in group)
                for name in (*self.metrics, "")
            }
            rows.append(
                {
                    "claim": claim,
                    "published": _in_print(group),
                    **{name: _tally(counts[name]) for name in self.metrics},
                    "both": _tally(counts[""]),
                }
            )
        return rows


def _in_print(claims: Sequence[Claim]) -> str:
    """In how many places the published means say so; `-` for what they cannot say."""
    said = [claim.published for claim in claims if claim.published != "-"]
    return f"{said.count('yes')} of {len(said)}" if said else "-"


def _tally(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in (HOLDS, FAILS, FEW) if counts[verdict])


def load_published(name: str, seeds: int = 3) -> Published:
    """The published cells of that name, or of a CSV file.

    Raises `UserError` with the names that there are, and for a file whose columns or values are not as they should be.
    """
    known = sorted(path.stem for path in FOLDER.glob("*.csv"))
    path = FOLDER / f"{name}.csv" if name in known else Path(name)
    try:
        cells = pd.read_csv(path)
    except FileNotFoundError:
        raise UserError(f"--published: no file {name!r}; expected one of {', '.join(known)}, or a CSV file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"--published: {path} cannot be read: {error}") from None
    missing = [column for column in PUBLISHED_COLUMNS if column not in cells]
    if missing:
        raise UserError(
            f"--published: {path} has no column {', '.join(missing)}; it has {', '.join(map(str, cells.columns))}"
        )
    for column in NUMBERS:
        values = pd.to_numeric(cells[column], errors="coerce")
        if values.isna().any():
            at = int(values.isna().to_numpy().argmax())
            raise UserError(f"--published: {path}:{at + 2}: {column} is {cells[column].iloc[at]!r}, expected a number")
        cells[column] = values.astype(float)
    twice = cells.duplicated(list(KEYS))
    if twice.any():
        raise UserError(f"--published: {path}:{int(twice.to_numpy().argmax()) + 2}: this cell is listed before")
    if "n" not in cells:
        cells["n"] = seeds
    counts = pd.to_numeric(cells["n"], errors="coerce")
    wrong = counts.isna() | (counts < 1) | (counts % 1 != 0)
    if wrong.any():
        at = int(wrong.to_numpy().argmax())
        raise UserError(f"--published: {path}:{at + 2}: n is {cells['n'].iloc[at]!r}, expected a number of seeds")
    cells["n"] = counts.astype(int)
    return Published(Path(name).stem, cells, CAUTIONS if path == FOLDER / "cifar.csv" else ())


def compare(
    pulled: Pulled, published: Published, *, epoch: str = "best", where: Mapping[str, str] | None = None
) -> Compared:
    """Every published cell beside ours.

    difference = ours - published; z = difference / sqrt(s^2 / n + s_p^2 / n_p), NaN for fewer than two seeds; in
    percent. Top-1 and top-5 are chosen each by itself: the epoch and the tuned parameters by the top-1 or the top-5 of
    the set by which the sweep selects. `where` picks cells by other fields that vary, such as `{"gamma_b": "1.0"}`.

    Raises `UserError` where no cell matches, where several match one published cell, and for an unknown field.
    """
    selections = {name: _selection(pulled, metric, epoch) for name, metric in _metrics(pulled).items()}
    theirs = published.cells.to_dict("records")
    listed = {cell_key(cell) for cell in theirs}
    ours = {name: _by_key(selection, where or {}, listed) for name, selection in selections.items()}
    first = next(iter(ours.values()))
    if not any(cell_key(cell) in first for cell in theirs):
        kinds = {tuple(str(key[at]) for at in (0, 1, 2)) for key in first}
        known = {tuple(str(cell[name]) for name in KEYS[:3]) for cell in theirs}
        raise NothingToCompareError(
            f"--published {published.name}: none of its cells is in {pulled.protocol.name}, which has "
            f"{'; '.join(' '.join(kind) for kind in sorted(kinds))}; published are "
            f"{'; '.join(' '.join(kind) for kind in sorted(known))}"
        )
    rows = [{**cell, **_beside(cell, ours, selections)} for cell in theirs]
    claims = claims_of(theirs, ours, selections)
    some = next(iter(selections.values()))
    return Compared(
        published, pulled.protocol.name, tuple(selections), pd.DataFrame(rows), tuple(claims), some.selected_on
    )


def _metrics(pulled: Pulled) -> dict[str, str]:
    """`top-1` and `top-5`, of those that were logged."""
    there = set(pulled.logged)
    found = {f"top-{k}": f"test/top{k}" for k in (1, 5) if f"test/top{k}" in there}
    if not found:
        raise UserError(
            f"{pulled.protocol.name}: no test/top1 was logged; there are: {', '.join(sorted(there)) or 'none'}"
        )
    return found


def _selection(pulled: Pulled, metric: str, epoch: str) -> Selection:
    split, _, kind = pulled.protocol.metric.partition("/")
    own = f"{split}/{metric.rpartition('/')[2]}"
    return select(
        pulled, metric=metric, epoch=epoch, by=own if kind.startswith("top") and own in pulled.logged else None
    )


def _by_key(
    selection: Selection, where: Mapping[str, str], listed: set[tuple[Any, ...]]
) -> dict[tuple[Any, ...], Mapping[Any, Any]]:
    """Our cells by what identifies a published one."""
    runs, cells = selection.pulled.runs, selection.cells
    fixed = {
        name: plain(runs[name])[0] if name in runs else None for name in ("optimizer", "model", "task", "weight_decay")
    }
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
    found: dict[tuple[Any, ...], Mapping[Any, Any]] = {}
    for cell in cells.to_dict("records"):
        at = {
            **fixed,
            **{name: cell[name] for name in fixed if name in cell},
            "rho": cell["rho"],
            "scheduler": cell["scheduler"],
        }
        key = cell_key({**at, "dataset": at["task"]})
        if key in found and key in listed:
            vary = {name: sorted({str(value) for value in selection.cells[name].dropna()}) for name in others}
            choices = "; ".join(f"{name}: {', '.join(values)}" for name, values in vary.items() if len(values) > 1)
            raise UserError(
                f"several cells of {selection.pulled.protocol.name} match one published cell; "
                f"--where picks among {choices}"
            )
        found[key] = cell
    return found


def _beside(
    theirs: Mapping[Any, Any],
    ours: Mapping[str, Mapping[tuple[Any, ...], Mapping[Any, Any]]],
    selections: Mapping[str, Selection],
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, cells in ours.items():
        cell = cells.get(cell_key(theirs))
        n = 0 if cell is None else int(cell["n"])
        mean, std = (math.nan, math.nan) if cell is None else (100 * cell["mean"], 100 * cell["std"])
        row |= {
            f"{name} mean": mean,
            f"{name} std": std,
            f"{name} n": n,
            f"{name} text": "no run" if cell is None else cell_text(cell, selections[name].metric),
            f"{name} difference": mean - theirs["test_accuracy_mean"],
            f"{name} z": z_score(mean, std, n, theirs["test_accuracy_mean"], theirs["test_accuracy_std"], theirs["n"]),
        }
    row["selected"] = next(
        (cells[cell_key(theirs)]["selected"] for cells in ours.values() if cell_key(theirs) in cells), ""
    )
    return row


def published_of(published: Published, selection: Selection) -> Any:
    """For `analysis.figures`: of a table's cells the published ones, as rho, scheduler, mean, std; None for none.

    Raises `UserError` where there are none for any table.
    """
    ours = _by_table(selection)
    keys = {cell_key(cell)[:4] for cell in published.cells.to_dict("records")}
    if not keys & {ours(cell) for cell in selection.cells.to_dict("records")}:
        raise NothingToCompareError(
            f"--published {published.name}: none of its tables is in {selection.pulled.protocol.name}"
        )

    def find(cells: pd.DataFrame) -> pd.DataFrame | None:
        kinds = {ours(cell) for cell in cells.to_dict("records")}
        if len(kinds) != 1:
            return None
        kind = kinds.pop()
        there = [cell for cell in published.cells.to_dict("records") if cell_key(cell)[:4] == kind]
        if not there:
            return None
        frame = pd.DataFrame(there).rename(columns={"test_accuracy_mean": "mean", "test_accuracy_std": "std"})
        return frame[["rho", "scheduler", "mean", "std"]]

    return find


def _by_table(selection: Selection) -> Any:
    runs = selection.pulled.runs
    fixed = {
        name: plain(runs[name])[0] if name in runs else None for name in ("optimizer", "model", "task", "weight_decay")
    }

    def kind(cell: Mapping[Any, Any]) -> tuple[Any, ...]:
        at = {**fixed, **{name: cell[name] for name in fixed if name in cell}}
        return cell_key({**at, "dataset": at["task"], "rho": cell["rho"], "scheduler": cell["scheduler"]})[:4]

    return kind
