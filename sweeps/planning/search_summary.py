"""What a search will do, in words: how many points, drawn from what, proposed how, judged when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from polysweep.sweeps.planning.plan import Plan
from polysweep.sweeps.spec.parameter import Parameter
from polysweep.sweeps.spec.search import STARTUP, size
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.trainer.text import brief

MOST_VALUES: Final = 8


def search_summary(plan: Plan) -> Iterator[str]:
    """The lines of a plan that its trials do not tell."""
    spec = plan.spec
    if spec.repetition:
        yield spec.repetition
    if spec.method == "bayes":
        yield from _on_bayes(plan)
    if spec.early_terminate is not None:
        epochs = {trial.epochs for trial in (*plan.trials, *spec.middles)}
        rungs = sorted({rung for total in epochs for rung in spec.early_terminate.rungs(total)})
        if rungs:
            after, eta = ", ".join(map(str, rungs)), spec.early_terminate.eta
            yield f"hyperband judges a point after epoch {after}; about one of {eta:g} continues"
        else:
            yield "hyperband never judges a point: a trial has too few epochs"


def per_point(plan: Plan) -> str:
    """The stacks of one point of bayes: `a stack of K = 3`."""
    seeds = len(plan.spec.seeds)
    widths = {plan.width(trial) for trial in plan.spec.middles}
    return " or ".join(
        f"a stack of K = {width}" if width >= seeds else f"{-(-seeds // width)} stacks of K = {width}"
        for width in sorted(widths)
    )


def _on_bayes(plan: Plan) -> Iterator[str]:
    spec, left = plan.spec, plan.proposals_left
    proposed = len(spec.suggestions)
    yield (
        f"bayes has proposed {proposed} of {spec.points} points; {left} to come, each with {len(spec.seeds)} seeds: "
        f"{left * len(spec.seeds)} trials"
    )
    yield f"drawn from: {_ranges(spec)}"
    if (spec.points or 0) <= STARTUP:
        yield f"all of them at random: Optuna's TPE needs {STARTUP} points that have ended before it learns from them"
    else:
        yield f"the first {STARTUP} at random, until as many have ended; then as Optuna's TPE proposes by the results"
    different = size(spec.space)
    if different is not None and different < (spec.points or 0):
        yield f"there are {different} different points only, and the search ends with them"


def _ranges(spec: SweepSpec) -> str:
    """What is searched: shared parameters, then those of each variant."""
    shared = _in_words(spec.parameters)
    if len(spec.variants) == 1:
        return "; ".join([*shared, *_in_words(spec.variants[0])]) or "nothing"
    return "; ".join([*shared, " | ".join(map(_variant_in_words, spec.variants))])


def _variant_in_words(variant: Mapping[str, Parameter]) -> str:
    fixed = ", ".join(f"{name} {one.at(0.5)}" for name, one in variant.items() if one.is_fixed)
    return f"with {fixed or 'the next variant'}: {'; '.join(_in_words(variant)) or 'nothing more'}"


def _in_words(parameters: Mapping[str, Parameter]) -> list[str]:
    return [f"{name} {in_words(one)}" for name, one in parameters.items() if not one.is_fixed]


def in_words(parameter: Parameter) -> str:
    """What a parameter is drawn from: `log_uniform_values from 0.01 to 1`."""
    kind, ends = parameter.kind, parameter.ends
    if parameter.values is not None:
        more = len(parameter.values) - MOST_VALUES
        listed = ", ".join(map(brief, parameter.values[:MOST_VALUES]))
        return f"one of {listed}{f' and {more} more' if more > 0 else ''}"
    steps = f" in steps of {parameter.q:g}" if kind.startswith("q_") else ""
    if kind.endswith("beta"):
        return f"{kind} with a = {parameter.a or 1:g}, b = {parameter.b or 1:g}{steps}"
    if kind.endswith("normal"):
        return f"{kind} with mu = {parameter.mu:g}, sigma = {parameter.sigma:g}{steps}"
    assert ends is not None
    return f"{kind} from {ends[0]:g} to {ends[1]:g}{steps}"
