"""polysweep: sweeps over sharpness-aware optimizers, their durable results, tables and plots.

    from polysweep import launch, mean_std_table, plan, plot_robustness, pull, select

    plan("spec.yaml")                               # what a launch would do, and what it would take
    runs = launch("spec.yaml")                      # or pull("quickstart"), or pull("wandb://entity/project")
    chosen = select(runs)
    mean_std_table(chosen)                          # a frame of text; chosen.cells has the numbers
    plot_robustness(chosen.cells, chosen.metric)

docs/python.md shows all of it. The names are imported when they are first used: `import polysweep` loads neither
torch, ray, wandb nor pandas.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from polysweep.analysis.data.frames import RunSet as RunSet
    from polysweep.analysis.data.pulling import pull as pull
    from polysweep.analysis.figures.budget_plots import plot_budget as plot_budget
    from polysweep.analysis.figures.curvature_plots import plot_curvature as plot_curvature
    from polysweep.analysis.figures.epoch_plots import plot_curves as plot_curves
    from polysweep.analysis.figures.epoch_plots import plot_gamma as plot_gamma
    from polysweep.analysis.figures.epoch_plots import plot_shares as plot_shares
    from polysweep.analysis.figures.gallery import figures as figures
    from polysweep.analysis.figures.plots import plot_against as plot_against
    from polysweep.analysis.figures.plots import plot_heatmap as plot_heatmap
    from polysweep.analysis.figures.plots import plot_robustness as plot_robustness
    from polysweep.analysis.figures.plots import plot_scores as plot_scores
    from polysweep.analysis.figures.plots import plot_stability as plot_stability
    from polysweep.analysis.figures.scores import robustness_scores as robustness_scores
    from polysweep.analysis.figures.search_plots import plot_best_so_far as plot_best_so_far
    from polysweep.analysis.figures.search_plots import plot_importance as plot_importance
    from polysweep.analysis.figures.search_plots import plot_pair as plot_pair
    from polysweep.analysis.figures.search_plots import plot_parameter as plot_parameter
    from polysweep.analysis.figures.severity_plots import plot_severity as plot_severity
    from polysweep.analysis.published.cells import load_published as load_published
    from polysweep.analysis.published.comparison import compare as compare
    from polysweep.analysis.report.html import write_report as write_report
    from polysweep.analysis.report.wandb_report import publish_report as publish_report
    from polysweep.analysis.tables.answers import answers as answers
    from polysweep.analysis.tables.budget import budget_curves as budget_curves
    from polysweep.analysis.tables.choice import select as select
    from polysweep.analysis.tables.curvature import curvature_means as curvature_means
    from polysweep.analysis.tables.importance import Importance as Importance
    from polysweep.analysis.tables.importance import importance as importance
    from polysweep.analysis.tables.layout import Layout as Layout
    from polysweep.analysis.tables.layout import subtables as subtables
    from polysweep.analysis.tables.leaderboard import Leaderboard as Leaderboard
    from polysweep.analysis.tables.leaderboard import leaderboard as leaderboard
    from polysweep.analysis.tables.mean_std import long_table as long_table
    from polysweep.analysis.tables.mean_std import mean_std_table as mean_std_table
    from polysweep.analysis.tables.mean_std import row_verdicts as row_verdicts
    from polysweep.analysis.tables.replication import decisions as decisions
    from polysweep.analysis.tables.selection import Selection as Selection
    from polysweep.analysis.tables.severity import severity_cells as severity_cells
    from polysweep.analysis.tables.severity import severity_table as severity_table
    from polysweep.analysis.tables.statistics import compare_means as compare_means
    from polysweep.analysis.tables.statistics import mean_interval as mean_interval
    from polysweep.analysis.tables.subset import only as only
    from polysweep.python_api import SweepPlan as SweepPlan
    from polysweep.python_api import TrainedTrial as TrainedTrial
    from polysweep.python_api import launch as launch
    from polysweep.python_api import plan as plan
    from polysweep.python_api import train as train
    from polysweep.sweeps.planning.welch import Sample as Sample
    from polysweep.sweeps.spec.spec import SweepSpec as SweepSpec
    from polysweep.trainer.components.component import REQUIRED as REQUIRED
    from polysweep.trainer.components.options import Options as Options
    from polysweep.trainer.components.registry import declare as declare
    from polysweep.trainer.components.wrapping import wrap as wrap
    from polysweep.trainer.config import TrialConfig as TrialConfig
    from polysweep.trainer.errors import ConfigError as ConfigError
    from polysweep.trainer.errors import DataError as DataError
    from polysweep.trainer.errors import UserError as UserError
    from polysweep.trainer.optimizers.optimizer import Optimizer as Optimizer
    from polysweep.trainer.optimizers.optimizer import StepResult as StepResult
    from polysweep.trainer.schedulers.scheduler import Gamma as Gamma
    from polysweep.trainer.schedulers.scheduler import Scheduler as Scheduler
    from polysweep.trainer.tasks.classification import Classification as Classification
    from polysweep.trainer.tasks.images import Images as Images
    from polysweep.trainer.tasks.images import Normalisation as Normalisation
    from polysweep.trainer.tasks.samples import Samples as Samples
    from polysweep.trainer.tasks.samples import hold_out as hold_out
    from polysweep.trainer.tasks.samples import train_val_test as train_val_test
    from polysweep.trainer.tasks.supervised import Regression as Regression
    from polysweep.trainer.tasks.supervised import Supervised as Supervised

_MODULES: Final = {
    "analysis.data.frames": ("RunSet",),
    "analysis.data.pulling": ("pull",),
    "analysis.figures.budget_plots": ("plot_budget",),
    "analysis.figures.curvature_plots": ("plot_curvature",),
    "analysis.figures.epoch_plots": ("plot_curves", "plot_gamma", "plot_shares"),
    "analysis.figures.gallery": ("figures",),
    "analysis.figures.plots": ("plot_against", "plot_heatmap", "plot_robustness", "plot_scores", "plot_stability"),
    "analysis.figures.scores": ("robustness_scores",),
    "analysis.figures.search_plots": ("plot_best_so_far", "plot_importance", "plot_pair", "plot_parameter"),
    "analysis.figures.severity_plots": ("plot_severity",),
    "analysis.published.cells": ("load_published",),
    "analysis.published.comparison": ("compare",),
    "analysis.report.html": ("write_report",),
    "analysis.report.wandb_report": ("publish_report",),
    "analysis.tables.answers": ("answers",),
    "analysis.tables.budget": ("budget_curves",),
    "analysis.tables.choice": ("select",),
    "analysis.tables.curvature": ("curvature_means",),
    "analysis.tables.importance": ("Importance", "importance"),
    "analysis.tables.layout": ("Layout", "subtables"),
    "analysis.tables.leaderboard": ("Leaderboard", "leaderboard"),
    "analysis.tables.mean_std": ("long_table", "mean_std_table", "row_verdicts"),
    "analysis.tables.replication": ("decisions",),
    "analysis.tables.selection": ("Selection",),
    "analysis.tables.severity": ("severity_cells", "severity_table"),
    "analysis.tables.statistics": ("compare_means", "mean_interval"),
    "analysis.tables.subset": ("only",),
    "python_api": ("SweepPlan", "TrainedTrial", "launch", "plan", "train"),
    "sweeps.planning.welch": ("Sample",),
    "sweeps.spec.spec": ("SweepSpec",),
    "trainer.components.options": ("Options",),
    "trainer.components.component": ("REQUIRED",),
    "trainer.components.registry": ("declare",),
    "trainer.components.wrapping": ("wrap",),
    "trainer.config": ("TrialConfig",),
    "trainer.errors": ("ConfigError", "DataError", "UserError"),
    "trainer.optimizers.optimizer": ("Optimizer", "StepResult"),
    "trainer.schedulers.scheduler": ("Gamma", "Scheduler"),
    "trainer.tasks.classification": ("Classification",),
    "trainer.tasks.images": ("Images", "Normalisation"),
    "trainer.tasks.samples": ("Samples", "hold_out", "train_val_test"),
    "trainer.tasks.supervised": ("Regression", "Supervised"),
}
_MODULE_OF: Final = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_MODULE_OF)  # noqa: PLE0605  # the names above


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'polysweep' has no attribute {name!r}")
    return getattr(importlib.import_module(f"polysweep.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
