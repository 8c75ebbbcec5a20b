"""Whether the seeds and looks of a spec's protocol and replication go together, before it is expanded."""

from __future__ import annotations

from polysweep.sweeps.spec.fields import SpecFields
from polysweep.sweeps.spec.parsing import Parameters
from polysweep.sweeps.spec.problems import Problems
from polysweep.sweeps.spec.protocol import seeds_text
from polysweep.sweeps.spec.yaml_lines import KeyPath


def check_protocol(spec: SpecFields, problems: Problems) -> None:
    """What can be checked of the protocol before the spec is expanded."""
    if spec.protocol is None:
        return
    both = [seed for seed in spec.protocol.report_on if seed in spec.protocol.tune_on]
    if both:
        free = seeds_text(_free_seeds(spec))
        problems.add(
            ("protocol", "report_on"),
            f"protocol.report_on: also in tune_on: {seeds_text(both)}; a seed that has chosen the candidate makes its "
            f"mean too good: report on others, such as {free}",
        )
    if not spec.tuned:
        problems.add(("protocol",), "protocol: nothing is 'tuned', so that there is nothing to choose; leave it out")
    if spec.metric.target is not None:
        problems.add(("metric", "target"), "metric.target ends the sweep before its protocol is over; leave it out")
    if spec.budget:
        _check_budget(spec, problems)


def _free_seeds(spec: SpecFields) -> list[int]:
    assert spec.protocol is not None
    first = max(spec.protocol.tune_on) + 1
    return list(range(first, first + len(spec.protocol.report_on)))


def _check_budget(spec: SpecFields, problems: Problems) -> None:
    """Whether candidates can be drawn for every cell, and the cells be listed."""
    if spec.method != "random":
        problems.add(
            ("protocol", "budget"),
            f"protocol.budget draws the candidates of every cell: it is for method: random, not {spec.method}",
        )
    for variant, space in enumerate(spec.space):
        for name, parameter in space.items():
            if name not in spec.tuned and parameter.grid is None:
                here = ("variants", variant, name) if name in spec.variants[variant] else ("parameters", name)
                problems.add(
                    here,
                    f"{name!r}: with protocol.budget what is not tuned makes cells and needs {{value: x}} or "
                    "{values: [x, ...]}; or add it to 'tuned'",
                )


def check_replication(spec: SpecFields, problems: Problems) -> None:
    """What can be checked of the replication before the spec is expanded."""
    replication = spec.replicate
    if replication is None:
        return
    if spec.metric.target is not None:
        problems.add(("metric", "target"), "metric.target ends the sweep before replicate is over; leave it out")
    if spec.early_terminate is not None and spec.protocol is None:
        problems.add(
            ("replicate",),
            "replicate: with early_terminate a seed may be stopped for its results, and a mean over the others is too "
            "good; add protocol: {tune_on: ..., report_on: ...}, whose reporting seeds all run to the end",
        )
    places: list[tuple[KeyPath, Parameters]] = [(("parameters",), spec.parameters)]
    places += [(("variants", index), variant) for index, variant in enumerate(spec.variants)]
    for path in [(*part, "seed") for part, parameters in places if "seed" in parameters and not spec.protocol]:
        problems.add(path, "'seed' as a parameter beside 'replicate', which adds seeds: use seeds")
    if spec.method == "bayes" and spec.tuned and spec.protocol is None:
        problems.add(
            ("replicate",),
            "replicate: bayes proposes candidates of the cells, and the seeds that choose one make its mean too good; "
            "add protocol: {tune_on: ..., report_on: ...}",
        )
    first = len(spec.report_seeds)
    if replication.looks[0] < first:
        what = "protocol.report_on has" if spec.protocol else "every cell has"
        problems.add(
            ("replicate", "looks"), f"replicate.looks: the first is at {replication.looks[0]} seeds, but {what} {first}"
        )
    if replication.field in spec.tuned:
        problems.add(
            ("replicate", "compare"),
            f"replicate.compare: {replication.field!r} is tuned: cells are compared, after the choice in each",
        )
