"""Whether a sweep's cells can be retrained and compared: metric, margin, cells, number of trials, each at its line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polysweep.sweeps.spec.added_trials import rounds, total_trials
from polysweep.sweeps.spec.claim_checks import missing_value
from polysweep.sweeps.spec.comparisons import pairs_of
from polysweep.sweeps.spec.decisions import Decisions, by_key
from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.parsing import MAX_TRIALS
from polysweep.sweeps.spec.preregistration import is_same, unit_problem
from polysweep.sweeps.spec.protocol import Replication, metric_reported
from polysweep.sweeps.spec.sweep import SweepTrial, by_cell, by_point
from polysweep.sweeps.spec.yaml_lines import KeyPath, Source
from polysweep.trainer.components.plugins import component, direction_of, metrics_of
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import expected
from polysweep.trainer.text import brief


def check_cells(spec: SpecFields, trials: Sequence[SweepTrial], configs: Iterable[TrialConfig], where: Source) -> None:
    """Raise `SpecError` if these tuning trials, or one of each cell, cannot be retrained or compared."""
    configs = list(configs)
    if spec.protocol and spec.protocol.retrain:
        _check_retrain(configs, where)
    if spec.replicate is None:
        return
    _check_metric(spec, spec.replicate, configs, where)
    _check_compared(spec.replicate, trials, where)
    if spec.protocol is None:
        _check_candidates(trials, where)
    most = len(by_key(trials)) * spec.replicate.looks[-1]
    if most > MAX_TRIALS:
        raise where.error(
            ("replicate", "looks"), f"replicate.looks: {most} trials at the last; a sweep has at most {MAX_TRIALS}"
        )
    if spec.replicate.max_trials and spec.method != "bayes":
        _check_max_trials(spec, spec.replicate, trials, where)


def _check_retrain(configs: Sequence[TrialConfig], where: Source) -> None:
    fractions = {config.val_fraction for config in configs}
    if not all(fractions):
        raise where.error(
            ("protocol", "retrain"), "protocol.retrain: requires val_fraction > 0: nothing is held out to be trained on"
        )
    if len(fractions) > 1:
        listed = ", ".join(f"{one:g}" for one in sorted(fractions))
        raise where.error(
            ("protocol", "retrain"),
            f"protocol.retrain: val_fraction has several values ({listed}), which retrained trials would not differ in",
        )


def reported_metric(spec: SpecFields) -> str:
    """What replication compares."""
    asked = spec.replicate.metric if spec.replicate else ""
    return asked or metric_reported(spec.metric.name, spec.protocol)


def fixed_plan(spec: SpecFields) -> dict[str, Any]:
    """What holds for all looks from the first one on, as that keeps it; empty without a replication."""
    if spec.replicate is None:
        return {}
    return {
        **spec.replicate.plan(),
        "metric": reported_metric(spec),
        "selected by": f"{spec.metric.name} ({spec.metric.goal})",
        "first seeds": list(spec.report_seeds),
        "retrain": spec.protocol is not None and spec.protocol.retrain,
    }


def is_larger_better(spec: SpecFields, configs: Iterable[TrialConfig]) -> bool | None:
    """Of the metric that replication compares; None if it is not known."""
    name, own = reported_metric(spec), spec.metric
    if name.rpartition("/")[2] == own.name.rpartition("/")[2]:
        return own.goal == "maximize"
    goals = {direction_of(component("task", config.task), name) for config in configs}
    return goals == {"maximize"} if goals in ({"maximize"}, {"minimize"}) else None


def _check_metric(spec: SpecFields, replication: Replication, configs: Sequence[TrialConfig], where: Source) -> None:
    """Whether the trials that are compared measure the metric, whether more of it is better, and the margin's unit."""
    name = reported_metric(spec)
    at: KeyPath = ("replicate", "metric") if replication.metric else ("replicate",)
    for config in configs:
        logged = metrics_of(component("task", config.task))
        if name not in logged:
            raise where.error(
                at, f"replicate.metric: task {config.task!r} does not log {brief(name)}; {expected(name, logged)}"
            )
        if name.startswith("val/") and (not config.val_fraction or (spec.protocol and spec.protocol.retrain)):
            why = "retrained trials hold nothing out" if config.val_fraction else "val_fraction is 0"
            raise where.error(at, f"replicate.metric: {name!r} is not measured, because {why}; such as test/top1")
    if is_larger_better(spec, configs) is None:
        raise where.error(at, f"replicate.metric: whether a larger {name!r} is better is not known")
    if replication.margin is not None:
        problem = unit_problem(replication.margin, name) or ("must be > 0" if not replication.margin.number else "")
        if problem:
            raise where.error(("replicate", "margin"), f"replicate.margin: {problem}")


def _check_compared(replication: Replication, trials: Sequence[SweepTrial], where: Source) -> None:
    """Whether the field tells cells apart, its values are there, and some cells differ in nothing else."""
    at = ("replicate", "compare")
    fields = trials[0].cell_fields if trials else ()
    if replication.field not in fields:
        choices = expected(replication.field, fields) if fields else "there is one cell only"
        raise where.error(at, f"replicate.compare: {brief(replication.field)} does not tell cells apart; {choices}")
    cells = [trial.cell for trial in trials]
    values = replication.values([]) if isinstance(replication.compare, Mapping) else []
    for place, value in enumerate(values):
        if any(is_same(value, other) for other in values[:place]):
            raise where.error(at, f"replicate.compare: {replication.field}={brief(value)} is listed twice")
        if problem := missing_value(replication.field, value, cells):
            raise where.error(at, f"replicate.compare: no cell has {problem}")
    if not pairs_of(replication, trials):
        raise where.error(at, f"replicate.compare: no two cells differ in {replication.field!r} alone")


def _check_candidates(trials: Sequence[SweepTrial], where: Source) -> None:
    """Without a protocol the seeds that chose a candidate would also report it."""
    points = Counter({tuple(members[0].cell.items()): len(by_point(members)) for members in by_cell(trials)})
    for cell, count in points.items():
        if count > 1:
            name = " ".join(f"{field}={value}" for field, value in cell) or "the only one"
            raise where.error(
                ("replicate",),
                f"replicate: cell {name} has {count} candidates, and the seeds that choose one make its mean too good; "
                "add protocol: {tune_on: ..., report_on: ...}",
            )


def _check_max_trials(spec: SpecFields, replication: Replication, trials: Sequence[SweepTrial], where: Source) -> None:
    """Whether the first look fits in."""
    unlimited = spec.model_copy(update={"replicate": replication.model_copy(update={"max_trials": None})})
    needed = total_trials(spec, trials, rounds(unlimited, trials, Decisions()))
    if needed > (replication.max_trials or math.inf):
        raise where.error(
            ("replicate", "max_trials"),
            f"replicate.max_trials: {replication.max_trials}, but the first look at {replication.looks[0]} seeds of "
            f"{len(by_key(trials))} cells makes {needed} trials",
        )
