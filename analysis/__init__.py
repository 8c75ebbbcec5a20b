"""Analysis: from the Store or from W&B to tidy frames, one choice per cell, tables, plots, comparison and report.

    from analysis import pull, select, mean_std_table, plot_robustness

    runs = pull("quickstart")                       # or pull("wandb://entity/project")
    chosen = select(runs)
    mean_std_table(chosen)                          # a frame of text; chosen.cells has the numbers
    plot_robustness(chosen.cells, chosen.metric, ax)

The names are imported when they are first used: `import analysis` costs nothing.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from analysis.compare import compare as compare
    from analysis.compare import load_published as load_published
    from analysis.epoch_plots import plot_curves as plot_curves
    from analysis.epoch_plots import plot_gamma as plot_gamma
    from analysis.epoch_plots import plot_shares as plot_shares
    from analysis.figures import figures as figures
    from analysis.frames import Pulled as Pulled
    from analysis.layout import Layout as Layout
    from analysis.layout import subtables as subtables
    from analysis.plots import plot_heatmap as plot_heatmap
    from analysis.plots import plot_robustness as plot_robustness
    from analysis.plots import plot_scores as plot_scores
    from analysis.plots import plot_stability as plot_stability
    from analysis.pull import pull as pull
    from analysis.report import write_report as write_report
    from analysis.scores import robustness_scores as robustness_scores
    from analysis.select import select as select
    from analysis.selection import Selection as Selection
    from analysis.stats import Sample as Sample
    from analysis.stats import compare_means as compare_means
    from analysis.stats import mean_interval as mean_interval
    from analysis.subset import only as only
    from analysis.tables import long_table as long_table
    from analysis.tables import mean_std_table as mean_std_table
    from analysis.tables import row_verdicts as row_verdicts

_PLACES: Final = {
    "compare": ("compare", "load_published"),
    "epoch_plots": ("plot_curves", "plot_gamma", "plot_shares"),
    "figures": ("figures",),
    "frames": ("Pulled",),
    "layout": ("Layout", "subtables"),
    "plots": ("plot_heatmap", "plot_robustness", "plot_scores", "plot_stability"),
    "pull": ("pull",),
    "report": ("write_report",),
    "scores": ("robustness_scores",),
    "select": ("select",),
    "selection": ("Selection",),
    "stats": ("Sample", "compare_means", "mean_interval"),
    "subset": ("only",),
    "tables": ("long_table", "mean_std_table", "row_verdicts"),
}
_HOMES: Final = {name: home for home, names in _PLACES.items() for name in names}
__all__ = sorted(_HOMES)  # noqa: PLE0605  # the names above


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'analysis' has no attribute {name!r}")
    return getattr(importlib.import_module(f"analysis.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]


class _Package(types.ModuleType):
    """`analysis.pull`, `.select` and `.compare` are the functions, also once the modules of that name are imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _HOMES and isinstance(value, types.ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
