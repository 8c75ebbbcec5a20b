"""Published cells: those that come with polysweep, or of a CSV file, and how they may be read."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pandas as pd

from polysweep.analysis.tables.mean_std import PUBLISHED_COLUMNS
from polysweep.trainer.errors import UserError
from polysweep.trainer.plain_file import read_plain_file
from polysweep.trainer.text import brief

FOLDER: Final = Path(__file__).parent
KEYS: Final = ("optimizer", "model", "dataset", "weight_decay", "rho", "scheduler")
LARGEST_CSV: Final = 2**26  # bytes
NUMBERS: Final = ("weight_decay", "rho", "test_accuracy_mean", "test_accuracy_std")
CAUTIONS: Final = (
    "The paper says top-1, but its CIFAR-100 numbers are too high for it (a ResNet-32 has about 70 % top-1 and "
    "91 % top-5), and they are nearly its CIFAR-10 numbers (difference 0.12 +- 0.29, r = 0.994). So CIFAR-10 is judged "
    "by top-1, and CIFAR-100 in three readings: by top-1, by top-5, and beside our CIFAR-10.",
    "The published value is that of the best test epoch, which is selected on the test set; a held-out protocol is "
    "expected to score lower.",
)


@dataclass(frozen=True)
class Reading:
    """What of ours a published cell is held against: the accuracy `metric`, of `dataset` instead of its own."""

    name: str
    metric: str
    dataset: str = ""


TOP1: Final = Reading("top-1", "test/top1")
TOP5: Final = Reading("top-5", "test/top5")
READINGS: Final[Mapping[str, tuple[Reading, ...]]] = {
    "cifar100": (TOP1, TOP5, Reading("our CIFAR-10", "test/top1", "cifar10")),
}
"""By dataset of the paper's tables, for those with other readings than top-1."""


@dataclass(frozen=True)
class Published:
    """Published cells: `cells` has the columns of the CSV and `n`, the seeds behind each mean."""

    name: str
    cells: pd.DataFrame
    cautions: tuple[str, ...] = ()  # what has to be known of them
    readings: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)  # by dataset; of all others top-1

    @property
    def seeds(self) -> str:
        """`3`, or several."""
        return " or ".join(str(n) for n in sorted(set(self.cells["n"])))


def load_published(name: str, seeds: int = 3) -> Published:
    """The published cells of that name, or of a CSV file.

    Raises `UserError` with the names that there are, and for a file whose columns or values are not as they should be.
    """
    shipped = sorted(path.stem for path in FOLDER.glob("*.csv"))
    path = FOLDER / f"{name}.csv" if name in shipped else Path(name)
    try:
        cells = pd.read_csv(io.BytesIO(read_plain_file(path, LARGEST_CSV)))
    except FileNotFoundError:
        raise UserError(f"--published: no file {name!r}; expected one of {', '.join(shipped)}, or a CSV file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--published: {brief(str(path), 200)} cannot be read: {reason}") from None
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
    is_paper = path == FOLDER / "cifar.csv"
    return Published(Path(name).stem, cells, CAUTIONS if is_paper else (), READINGS if is_paper else {})
