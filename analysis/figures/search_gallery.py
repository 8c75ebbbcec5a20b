"""The figures of a search without tuned parameters, each with the frame that it was drawn from."""

from __future__ import annotations

import math
from collections.abc import Iterator

from matplotlib.figure import Figure

from polysweep.analysis.figures import captions, search_plots
from polysweep.analysis.figures.budget_plots import are_curves, budget_figure
from polysweep.analysis.figures.files import NamedFigure, figure_name
from polysweep.analysis.figures.panels import titled
from polysweep.analysis.figures.styles import is_number
from polysweep.analysis.tables.budget import budget_curves
from polysweep.analysis.tables.importance import importance
from polysweep.analysis.tables.leaderboard import Leaderboard, leaderboard
from polysweep.analysis.tables.selection import Selection
from polysweep.analysis.tables.wording import equals, field_label, field_words


def search_figures(selection: Selection, width: float) -> Iterator[NamedFigure]:
    """The metric against each parameter, best so far, importances, and the two most important parameters together."""
    board = leaderboard(selection)
    yield _parameters(board, width)
    yield _best_so_far(board, width)
    curves = budget_curves(selection)
    if are_curves(curves):
        yield budget_figure(selection, curves, width, lines=[name for name in board.parameters if name in curves])
    mattered = importance(board)
    figure = Figure(figsize=(width if width < 4 else 0.8 * width, 1.4 + 0.3 * max(len(mattered.parameters), 3)))
    search_plots.plot_importance(mattered, figure.subplots())
    about = f"{mattered.metric}, {equals('n', mattered.n)} points"
    words = "Which parameters mattered: permutation importance of each"
    text = f"{mattered.reason or mattered.about_the_forest()}; {equals('n', mattered.n)} of {mattered.points} points"
    title = captions.title(selection, {}, f"importance for {about}")
    yield titled("importance", figure, mattered.parameters, title, captions.sentence(words, {}, text))
    numbers = [name for name in mattered.parameters["parameter"] if any(map(is_number, board.points[name]))]
    if mattered.is_predictive and len(numbers) > 1:
        yield _pair(board, numbers[0], numbers[1], width)


def is_drawn_in_logarithms(board: Leaderboard, name: str) -> bool | None:
    """Whether a parameter was drawn on a logarithmic scale; None if that is not known."""
    fields = board.selection.pulled.protocol.log_fields
    few = len(set(board.points[name].dropna())) <= search_plots.FEW
    return None if fields is None or few else name in fields


def _parameters(board: Leaderboard, width: float) -> NamedFigure:
    """One panel per parameter, all with the same metric."""
    selection, names = board.selection, board.parameters or ["point"]
    columns = min(len(names), 2 if width < 4 else 3)
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(width, 2.2 * rows + 0.3))
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False).flatten()
    for ax, name in zip(axes, names, strict=False):
        is_log = is_drawn_in_logarithms(board, name)
        search_plots.plot_parameter(board.points, name, selection.metric, ax, is_log=is_log)
        ax.set(title=field_label(name), xlabel="")
        ax.tick_params(labelleft=True)
    for ax in axes[len(names) :]:
        ax.set_visible(False)
    what = f"{captions.metric_words(selection)} of each point against each parameter"
    marks = "a star is the best point, a hollow one lacks a result, marks at the foot have no mean"
    return _titled(board, "parameters", figure, what, f"{_numbers(board)}; {marks}", "points against each parameter")


def _best_so_far(board: Leaderboard, width: float) -> NamedFigure:
    figure = Figure(figsize=(width if width < 4 else 0.8 * width, 3.0))
    ax, metric = figure.subplots(), board.selection.metric
    is_maximal = board.is_maximal if board.selection.is_maximal is None else board.selection.is_maximal
    search_plots.plot_best_so_far(board.points, metric, ax, is_maximal=is_maximal)
    what = f"{captions.metric_words(board.selection)} of the points in the order of the sweep, and the best so far"
    numbers = f"{_numbers(board)}; of points with all results, the best so far of those without a lost seed"
    return _titled(board, "best-so-far", figure, what, numbers, "best so far")


def _pair(board: Leaderboard, x: str, y: str, width: float) -> NamedFigure:
    figure = Figure(figsize=(width if width < 4 else 0.8 * width, 3.6))
    logs = (is_drawn_in_logarithms(board, x), is_drawn_in_logarithms(board, y))
    search_plots.plot_pair(board.points, x, y, board.selection.metric, figure.subplots(), logs=logs)
    what = f"{captions.metric_words(board.selection)} over {field_words(x)} and {field_words(y)}"
    kind = figure_name("pair", {x: y})
    return _titled(
        board, kind, figure, what, f"{_numbers(board)}; a star is the best", "the two most important numbers"
    )


def _numbers(board: Leaderboard) -> str:
    """What the points are."""
    selection, seeds = board.selection, board.points["seeds"]
    several = (
        f"means over n = {captions.n_of(board.points[board.points['n'] > 0])} seeds"
        if len(seeds) and seeds.max() > 1
        else "one seed each"
    )
    chosen = captions.chosen_on(selection)
    return f"{len(board.ranked)} of {len(board.points)} points with all results, {several}{chosen}"


def _titled(board: Leaderboard, kind: str, figure: Figure, what: str, numbers: str, about: str) -> NamedFigure:
    selection = board.selection
    n = equals("n", len(board.ranked))
    title = captions.title(selection, {}, f"{about}, {selection.epoch} epoch, {n} points")
    return titled(kind, figure, board.points, title, captions.sentence(what, {}, numbers))
