"""What is pulled: `runs`, one row per trial; `history`, one row per trial and epoch; and the protocol they follow."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyarrow import compute as pc

from polysweep.analysis.data.display import Displayed
from polysweep.sweeps.spec.decisions import Look
from polysweep.sweeps.spec.preregistration import Preregistration
from polysweep.sweeps.spec.protocol import Protocol, Replication
from polysweep.sweeps.spec.sweep import Range
from polysweep.trainer.errors import UserError
from polysweep.trainer.history import CORRUPTED, HISTORY_COLUMNS

EPOCHS: Final = ("best", "last")
LOSSES: Final = frozenset(
    ("loss", "losses", "err", "error", "errors", "nll", "ece", "perplexity", "ppl", "mse", "mae", "rmse", "mape",
     "regret", "suboptimality", "distance", "curvature")
)  # fmt: skip
GAINS: Final = frozenset(
    ("acc", "accuracy", "top1", "top5", "auc", "auroc", "f1", "precision", "recall", "iou", "miou", "map", "bleu",
     "reward", "rewards")
)  # fmt: skip
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])")
"""A word of a metric's name: `valLoss`, `val_loss` and `val/loss` have two."""
SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers as W&B's server spells them."""


@dataclass(frozen=True)
class SelectionRule:
    """Which runs belong together, and what chooses among them.

    A *cell* is one choice of the fields `cell`; its *candidates* are the choices of the fields `tuned`; the runs of a
    candidate differ in their `seed`. `metric`, in the direction of `goal` (`maximize` or `minimize`), chooses the best
    epoch of a run and the candidate of a cell.
    """

    name: str
    metric: str
    goal: str
    cell: tuple[str, ...]
    tuned: tuple[str, ...] = ()
    text: str = ""  # the spec, as launched
    source: str = ""  # where the runs come from: a Store's root, or a wandb:// address
    project: str | None = None  # of W&B, if the spec names one
    entity: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)  # by our name theirs, in a project that is not ours
    directions: Mapping[str, str] = field(default_factory=dict)  # by metric `minimize` or `maximize`, as a task says
    ranges: Mapping[tuple[int, str], Range] = field(default_factory=dict)
    """Of a search, by variant and tuned field what values were drawn from; `runs` then has the column `variant`."""
    is_search: bool = False  # whether the cells are the points of a search, of which nothing is tuned: they are ranked
    log_fields: frozenset[str] | None = None  # of a search, those drawn on a logarithmic scale; None if not known
    roles: Protocol | None = None  # which seeds choose and which report; `runs` then has the column `is_added`
    replication: Replication | None = None  # what gets seeds until it is decided
    looks_made: Sequence[Look] = ()  # of a sweep of the Store
    begun: int = 0  # trials that had begun when looks were asked for
    claims: Preregistration | None = None  # of a sweep of the Store, as its first launch has frozen them
    probed: Mapping[str, str] = field(default_factory=dict)  # by what a probe has measured, at which epoch: best, last
    problem: str = ""  # why claims, decisions or measurements cannot be read

    @property
    def is_maximal(self) -> bool:
        """Whether a larger value of the metric is better."""
        return self.goal == "maximize"

    @property
    def looks(self) -> int:
        """How often the seeds may have been looked at before there were no more: 1 if their number is fixed."""
        return len(self.replication.looks) if self.replication else 1


@dataclass(frozen=True, repr=False)
class RunSet(Displayed):
    """The runs of a study.

    `runs`: trial_id, sweep, outcome, every config field, `best_epoch`, `best/<column>` (at the best epoch of the
    protocol's metric), `last/<column>`, provenance. A diverged or failed trial, and one that has not started, has no
    best and no last values. Columns are of Arrow types: None comes back as <NA>, and NaN as NaN.
    """

    protocol: SelectionRule
    runs: pd.DataFrame
    load: Callable[[Sequence[str] | None], pa.Table]
    """Reads columns of the history, all of them for None; a column that no run logged is left out."""

    def headline(self) -> str:
        """`made: 24 runs: 20 finished, 4 diverged; metric test/top1 (maximize)`."""
        rule = self.protocol
        return f"{rule.name}: {len(self.runs)} runs: {counts(self)}; metric {rule.metric} ({rule.goal})"

    @property
    def tuning_runs(self) -> pd.DataFrame:
        """`runs` without those that a protocol's reporting seeds have added."""
        return self.runs[~self.runs["is_added"]] if self.protocol.roles else self.runs

    @cached_property
    def history(self) -> pd.DataFrame:
        """trial_id and the logged columns, one row per trial and epoch, in the order of `runs`."""
        return frame(self.load(None))

    def columns(self, names: Iterable[str]) -> pd.DataFrame:
        """`history` with only these columns: much less to read."""
        return frame(self.load(list(dict.fromkeys(["trial_id", *names_of(names)]))))

    @cached_property
    def logged(self) -> list[str]:
        """The columns that `best/` and `last/` have, in order."""
        return [name.removeprefix("last/") for name in self.runs.columns if str(name).startswith("last/")]


def counts(pulled: RunSet) -> str:
    """`70 finished, 2 diverged`."""
    by_outcome = Counter(pulled.runs["outcome"].tolist())
    return ", ".join(f"{count} {outcome}" for outcome, count in by_outcome.most_common())


def names_of(names: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names as given; a text is one name, not its letters."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def direction(metric: str, protocol: SelectionRule) -> bool | None:
    """Whether a larger value is better: as of the protocol's metric, also of another set; else by the metric's name."""
    last = metric.rpartition("/")[2]
    if metric == protocol.metric or last == protocol.metric.rpartition("/")[2]:
        return protocol.is_maximal
    return protocol.directions[metric] == "maximize" if metric in protocol.directions else by_name(metric)


def by_name(metric: str) -> bool | None:
    """What the words in the name of a metric say of its direction, None where they say nothing, or both."""
    if metric.rpartition("/")[2] in CORRUPTED:
        return True
    words = {word.lower() for word in _WORD.findall(metric)}
    is_loss, is_gain = bool(words & LOSSES), bool(words & GAINS)
    return None if is_loss == is_gain else is_gain


def frame(table: pa.Table) -> pd.DataFrame:
    """A table as a frame of Arrow types, which tell None from NaN."""
    converted: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return converted


def to_python(values: pd.Series) -> list[Any]:
    """The values of a column as Python has them, None for what is missing; every NaN is one object, as keys need it."""
    converted = [None if value is pd.NA else value for value in values.tolist()]
    return [math.nan if isinstance(value, float) and math.isnan(value) else value for value in converted]


def to_arrow(values: Sequence[Any]) -> pa.Array:
    """A column of the type that its values have: booleans, counts, numbers, text; anything mixed as JSON text."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values))  # a type of its own: beside other runs it takes theirs
    if str in kinds and kinds <= {str, int, float} and all(v in SPECIAL for v in values if isinstance(v, str)):
        values = [SPECIAL[value] if isinstance(value, str) else value for value in values]
        kinds = {float}
    if kinds == {int} and all(value is None or abs(value) < 2**63 for value in values):
        return pa.array(values, pa.int64())
    if kinds <= {int, float}:
        with suppress(OverflowError):  # of an int that no float can hold
            return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    texts = [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
    return pa.array(texts, pa.string())


def empty_history() -> pa.Table:
    """A history without rows."""
    kinds = {"epoch": pa.int64(), "step": pa.int64(), "partial": pa.bool_()}
    return pa.schema(
        [("trial_id", pa.string()), *((name, kinds.get(name, pa.float64())) for name in HISTORY_COLUMNS)]
    ).empty_table()


def runs_of(table: pa.Table) -> list[str]:
    """The trial ids of a runs table."""
    return list(table["trial_id"].to_pylist())


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one below the other; a column that one lacks is null there, and one of two types takes the wider.

    Where the types have nothing in common (a number here, text there) the column becomes text.
    """
    if all(table.schema.equals(tables[0].schema) for table in tables):
        return pa.concat_tables(tables).combine_chunks()
    try:
        return pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowTypeError:
        kinds: dict[str, set[pa.DataType]] = {}
        for table in tables:
            for one in table.schema:
                kinds.setdefault(one.name, set()).add(one.type)
        mixed = {name for name, of_name in kinds.items() if not _have_a_common_type(of_name)}
        return pa.concat_tables([_as_text(table, mixed) for table in tables], promote_options="permissive")


def _have_a_common_type(kinds: set[pa.DataType]) -> bool:
    not_null = {kind for kind in kinds if not pa.types.is_null(kind)}
    numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in not_null)
    return len(not_null) < 2 or numbers


def _as_text(table: pa.Table, names: set[str]) -> pa.Table:
    for at, name in enumerate(table.column_names):
        if name in names:
            table = table.set_column(at, name, pc.cast(table[name], pa.string()))
    return table


def require_metric(pulled: RunSet, metric: str, option: str) -> None:
    """Raise `UserError` with the metrics that there are where this one was never logged."""
    if any(f"{which}/{metric}" in pulled.runs and pulled.runs[f"{which}/{metric}"].notna().any() for which in EPOCHS):
        return
    there = [name for name in pulled.logged if pulled.runs[f"last/{name}"].notna().any()]
    raise UserError(
        f"{option}: no run of {pulled.protocol.name} that has a result logged {metric!r}; "
        f"they logged: {', '.join(there) or 'nothing yet'}"
    )
