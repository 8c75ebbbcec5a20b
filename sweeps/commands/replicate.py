"""`polysweep replicate`: give a sweep that was launched further seeds, look after look, until it is decided."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from polysweep.sweeps.commands.launch import start
from polysweep.sweeps.console import say
from polysweep.sweeps.job import LaunchOptions
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import SpecError, read_yaml, to_yaml
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError

OPTIONS: Final = {
    "replicate.compare": "--compare",
    "replicate.looks": "--looks",
    "replicate.margin": "--margin",
    "replicate.level": "--level",
    "replicate.max_trials": "--max-trials",
    "replicate.metric": "--metric",
    "protocol.report_on": "--report-on",
    "add protocol: {tune_on: ..., report_on: ...}": "--report-on names others that report",
}
"""By what a message says of a spec, the option."""
LOOKS: Final = [3, 5, 10, 20]
"""Seeds per cell at each look, if none are asked for."""


def replicate(
    name: str,
    store: Store,
    options: LaunchOptions,
    replication: dict[str, Any],
    report_on: list[int] | None = None,
    *,
    is_dry: bool = False,
) -> int:
    """Launch a sweep again with this `replicate` in its spec, or with the one that it has; returns the exit code.

    `report_on` makes a protocol of a sweep without one: its seeds have tuned, and these report. With `is_dry` what a
    launch would do is printed. Raises `UserError` if it has another plan already, or nothing says what to compare.
    """
    spec = replicated(name, store.launched(name).text, replication, report_on)
    if is_dry:
        from polysweep.sweeps.commands.plan import plan_launch
        from polysweep.sweeps.commands.printing import show_plan

        planned = plan_launch(spec, store, options.data_dir)
        extension = replace(planned.extension, changed=())  # what was asked for
        show_plan(planned.plan, extension, planned.estimate, planned.decisions)
        return 0
    return start(spec, store, options)


def replicated(name: str, text: str, replication: dict[str, Any], report_on: list[int] | None) -> SweepSpec:
    """The spec of a sweep with a replication, and with a protocol if there are reporting seeds."""
    source = f"the spec of {name} as launched"
    data, _ = read_yaml(text, source)
    assert isinstance(data, dict)
    replication = {key: value for key, value in replication.items() if value is not None}
    if not replication and report_on is None:
        if "replicate" not in data:
            raise UserError(f"--compare: missing, and {source} has no 'replicate'; such as --compare scheduler")
        return SweepSpec.parse(text, source, name)
    if "replicate" in data and replication.keys() == {"max_trials"}:
        replication = {**data["replicate"], **replication}
    elif "replicate" in data and replication:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in replication)
        raise UserError(f"{options}: {source} has a 'replicate' of its own; leave it out, or launch a changed spec")
    if "compare" not in replication and "replicate" not in data:
        raise UserError("--compare: missing; the field whose values are compared, such as --compare scheduler")
    if report_on is not None:
        if "protocol" in data:
            raise UserError(f"--report-on: {source} has a 'protocol', which says what reports; leave it out")
        seeds = SweepSpec.parse(text, source, name, recorded=True).seeds
        data = {key: value for key, value in data.items() if key != "seeds"}
        data["protocol"] = {"tune_on": seeds, "report_on": report_on}
    if replication:
        data["replicate"] = {"looks": LOOKS, **replication}
    changed = "# The spec as launched, with what `polysweep replicate` has added.\n" + to_yaml(data) + "\n"
    try:
        spec = SweepSpec.parse(changed, source, name)
    except SpecError as error:
        raise UserError(_by_options(error.shown, source)) from None
    say(f"{name}: replicate: {to_yaml(data['replicate'], in_one_line=True)}")
    return spec


def _by_options(text: str, source: str) -> str:
    """What is wrong with a spec that the options have changed, by their names: its lines are in no file."""
    text = re.sub(rf"{re.escape(source)}(:\d+)?: ", "", text)
    for key, option in OPTIONS.items():
        text = text.replace(key, option)
    return text
