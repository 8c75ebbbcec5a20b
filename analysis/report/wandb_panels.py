"""What W&B shows live of a sweep, in the workspace view and in the report alike: its runs, and the panels over them."""

from __future__ import annotations

import hashlib
import string
import warnings
from typing import Any, Final

from polysweep.analysis.data.address import SCHEME, Address
from polysweep.analysis.data.frames import RunSet, SelectionRule
from polysweep.sweeps.spec.sweep import OPTIONS
from polysweep.sweeps.tracking.summary_run import PREFIX, summary_ids
from polysweep.trainer.history import PROBLEM_METRICS
from polysweep.trainer.wandb_client import target_project

TITLE: Final = "polysweep"
MOST_RUNS: Final = 100
USUAL: Final = ("test/top1", "train/loss", "suboptimality/relative", "distance/relative")
"""What is drawn over the epochs besides a sweep's own metrics, if it was logged."""
_LETTERS: Final = string.ascii_lowercase + string.digits


def place_of(pulled: RunSet) -> tuple[str | None, str]:
    """Entity and project of the runs: those of a wandb:// address, else the ones that runs are logged to."""
    address = _address(pulled.protocol)
    if address is not None:
        return address.entity, address.project
    return target_project(pulled.protocol.entity, pulled.protocol.project)


def tag_of(protocol: SelectionRule) -> str | None:
    """The tag that the sweep's runs have; None for all runs of a project."""
    address = _address(protocol)
    return protocol.name if address is None else address.tag


def summary_id(name: str) -> str:
    """The id of the run that has the plots of a sweep's report."""
    return f"{PREFIX}{fixed_id('report', name)}"


def filters_of(protocol: SelectionRule) -> Any:
    """Which runs of the project are the sweep's: those with its tag, or all but those that have plots of a report."""
    from wandb_workspaces import expr

    tag = tag_of(protocol)
    if tag and protocol.roles:  # no mean is over the seeds that have tuned
        return expr.And(expr.Tags().isin([tag]), expr.Config("seed").notin(list(protocol.roles.tune_on)))
    if tag:
        return expr.And(expr.Tags().isin([tag]))
    return expr.And(expr.Metric("ID").notin(list(summary_ids(summary_id(protocol.name)))))


def source_of(protocol: SelectionRule) -> str:
    """What the commands call the sweep: its name in a Store, or its address."""
    return protocol.name if _address(protocol) is None else protocol.source


def fixed_id(kind: str, name: str) -> str:
    """An id of 11 letters and digits that is always the same for a sweep: of the hash of `kind` and its name."""
    digest = hashlib.sha256(f"polysweep {kind} {name}".encode()).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:11])


def library() -> Any:
    """The module `wandb_workspaces.reports.v2`, which warns when it is imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import wandb_workspaces.reports.v2 as wr
    return wr


def _address(protocol: SelectionRule) -> Address | None:
    return Address.parse(protocol.source) if protocol.source.startswith(SCHEME) else None


class _Whole(str):
    """The name of a config field with a dot in it that is no level: `Config` splits it, and would look one level down.

    Our runs have their options under such names: `model_options.hidden` is one field of the config.
    """

    def split(self, *_: Any) -> list[str]:
        return [str(self)]


class Panels:
    """The panels of a sweep, one method a section."""

    def __init__(self, pulled: RunSet) -> None:
        self._wr = library()
        self._pulled = pulled
        self._protocol = pulled.protocol
        self._logged = {name for name in pulled.logged if pulled.runs[f"last/{name}"].notna().any()}
        self.axis = "epoch" if "epoch" in pulled.columns(["epoch"]) else "Step"
        varying = dict.fromkeys((*pulled.protocol.cell, *pulled.protocol.tuned))
        self._varying = [name for name in varying if name in pulled.runs]

    @property
    def has_groups(self) -> bool:
        """Whether the runs have groups of ours: their config without the seed."""
        runs = self._pulled.runs
        return _address(self._protocol) is None or ("width" in runs and bool(runs["width"].notna().any()))

    @property
    def fields(self) -> list[str]:
        """The paths of the config fields that tell the runs apart, the seed left out, as W&B's server has them."""
        return [_path(self._theirs(name)) for name in self._varying]

    def sections(self) -> dict[str, list[Any]]:
        """By title the panels of each section that has some."""
        by_title = {
            "Robustness and stability": self.against_fields(),
            "Training curves": self.curves(),
            "Step size and ascent gain": self.step_sizes(),
        }
        sections = {title: panels for title, panels in by_title.items() if panels}
        for at, panel in enumerate(panel for panels in sections.values() for panel in panels):
            panel._id = f"polysweep{at}"  # the client would draw one at random: the same sweep is the same definition
        return sections

    def against_fields(self) -> list[Any]:
        """The metric against the radius, step size and cap, and over all fields that vary."""
        wr, protocol, metric, varying = self._wr, self._protocol, self._protocol.metric, self._varying
        panels = [self._points(name, log=name != "rho") for name in ("rho", "lr", "gamma_b") if name in varying]
        if protocol.is_search:
            logs = protocol.log_fields or ()
            panels = [self._points(name, log=name in logs) for name in varying]
            panels.append(wr.ParameterImportancePlot(with_respect_to=self._theirs(metric)))
        if varying:
            axes = [*map(self._config, varying), wr.SummaryMetric(self._theirs(metric))]
            columns = [wr.ParallelCoordinatesPlotColumn(metric=one) for one in axes]
            panels.append(wr.ParallelCoordinatesPlot(title=f"last {metric} over the sweep", columns=columns))
        return panels

    def curves(self) -> list[Any]:
        """Over the epochs the metric, even if no run has logged it, the task's own metrics, and the usual ones."""
        names = dict.fromkeys([self._protocol.metric, *self._protocol.directions, *USUAL])
        there = self._logged | {self._protocol.metric}
        return [
            self._lines(f"{name}: mean and std over seeds", name, log_y=name in PROBLEM_METRICS or None)
            for name in names
            if name in there
        ]

    def step_sizes(self) -> list[Any]:
        """The step size, its shares at the cap and at 0, and the ascent gain, if they were logged."""
        titles: dict[str, tuple[str, dict[str, Any]]] = {
            "gamma/mean": ("step size gamma", {"log_y": True}),
            "gamma/cap_share": ("gamma/cap_share of the steps", {}),
            "gamma/zero_share": ("gamma/zero_share of the steps", {}),
            "ascent_gain": ("ascent gain f(e) - f(x)", {}),
        }
        return [
            self._lines(title, name, **options) for name, (title, options) in titles.items() if name in self._logged
        ]

    def _theirs(self, name: str) -> str:
        """The project's name of one of our fields or columns."""
        return self._protocol.names.get(name, name)

    def _config(self, name: str) -> Any:
        """A field of the runs' configs."""
        field = self._wr.Config(self._theirs(name))
        if _is_whole(name):
            object.__setattr__(field, "name", _Whole(name))  # it is frozen, and its constructor takes plain text alone
        return field

    def _lines(self, title: str, name: str, **options: Any) -> Any:
        return self._wr.LinePlot(
            title=title, x=self.axis, y=[self._theirs(name)], groupby="Group" if self.has_groups else None,
            groupby_aggfunc="mean", groupby_rangefunc="stddev", max_runs_to_show=MOST_RUNS, **options,
        )  # fmt: skip

    def _points(self, name: str, *, log: bool) -> Any:
        metric = self._protocol.metric
        return self._wr.ScatterPlot(
            title=f"last {metric} against {name}",
            x=self._config(name),
            y=self._wr.SummaryMetric(self._theirs(metric)),
            log_x=log,
        )


def _path(name: str) -> str:
    """`lr.value`, `model_options.hidden.value`, and of a nested config `optimizer.value.radius`."""
    if _is_whole(name):
        return f"{name}.value"
    head, dot, tail = name.partition(".")
    return f"{head}.value{dot}{tail}"


def _is_whole(name: str) -> bool:
    """Whether a name with a dot is one field of our configs."""
    return name.partition(".")[0] in OPTIONS
