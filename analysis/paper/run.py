"""Runs what the paper lacks: plans, launches and measures its sweeps, then writes the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polysweep.analysis.data.frames import RunSet, to_python
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.paper.cost import hours_by_class
from polysweep.analysis.paper.document import document_of
from polysweep.analysis.paper.parts import PARTS, Part
from polysweep.analysis.paper.rendering import write_document
from polysweep.sweeps.commands.launch import start
from polysweep.sweeps.commands.plan import plan_launch
from polysweep.sweeps.commands.probe import ProbeOptions, measure_sweep
from polysweep.sweeps.console import say
from polysweep.sweeps.job import LaunchOptions
from polysweep.sweeps.planning.preflight import check_trials, data_folder
from polysweep.sweeps.planning.spec_changes import as_launched, compare
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import SweepTrial
from polysweep.sweeps.spec.yaml_lines import SpecError, read_yaml, to_yaml
from polysweep.sweeps.store.probes import ProbeFiles
from polysweep.sweeps.store.states import FINAL
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import DataError, UserError


@dataclass(frozen=True)
class PaperOptions:
    """What is asked for."""

    out: Path
    launch: LaunchOptions
    is_rehearsal: bool = False
    gpus: str | None = None  # of the sweeps with images: a number, or auto


def run_paper(store: Store, options: PaperOptions) -> int:
    """Launch and measure what is missing, then write the document; returns the exit code.

    Raises `UserError` before anything starts if the data is missing and cannot be fetched.
    """
    specs = specs_of(options)
    require_same(specs, store)
    if not options.is_rehearsal:
        require_data(specs, options.launch.data_dir)
    folder = options.out / "specs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for spec in specs:
            (folder / f"{spec.name}.yaml").write_text(spec.text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out: {options.out} cannot be written: {error.strerror or error}") from None
    codes = []
    for part, spec in zip(PARTS, specs, strict=True):
        codes.append(start(spec, store, options.launch))
        if codes[-1] > 2:  # interrupted
            return codes[-1]
        measurements = part.measured(is_rehearsal=options.is_rehearsal)
        if measurements:
            codes.append(measure_sweep(spec.name, store, measurements, ProbeOptions(options.launch.data_dir)))
    pulled = {part.name: pull(spec.name, store=store) for part, spec in zip(PARTS, specs, strict=True)}
    document = document_of(pulled, is_rehearsal=options.is_rehearsal, spent=spent_hours(pulled, store))
    pages = write_document(document, options.out)
    for line in document.summary:
        say(line)
    say(f"{', '.join(map(str, pages))}: {document.tables} tables, {document.figures} figures")
    return max(codes)


def specs_of(options: PaperOptions) -> list[SweepSpec]:
    """The specs of all parts, on GPUs if they are asked for. Raises `UserError` for a number that is none."""
    return [_on(part, part.spec(is_rehearsal=options.is_rehearsal), options.gpus) for part in PARTS]


def _on(part: Part, spec: SweepSpec, gpus: str | None) -> SweepSpec:
    """The spec on a GPU, or on a part of one; convex problems are small and stay on the CPU."""
    if gpus is None or not part.measurements:
        return spec
    data, _ = read_yaml(spec.text, spec.name)
    assert isinstance(data, dict)
    amount: Any = gpus if gpus == "auto" else read_yaml(gpus, "--gpus")[0]
    data["launch"] = {**data["launch"], "gpus": amount}
    try:
        return SweepSpec.parse(to_yaml(data), f"{spec.name}.yaml", spec.name)
    except SpecError as error:
        raise UserError(f"--gpus: {gpus!r}: {error.shown.partition('launch.gpus: ')[2] or error.shown}") from None


def require_same(specs: Sequence[SweepSpec], store: Store) -> None:
    """Raise `UserError` if the Store has another sweep under the name of one of these."""
    for spec in specs:
        changed = compare(as_launched(spec, store), store).changed
        if changed:
            raise UserError(f"the Store has another sweep {spec.name!r} ({'; '.join(changed)}): take another --store")


def require_data(specs: Sequence[SweepSpec], data_dir: str | None) -> None:
    """Raise `DataError`, in one line for all data sets, if one is missing and cannot be fetched."""
    problems = []
    configs = {config.task: config for spec in specs for config in spec.kinds}
    for config in configs.values():
        try:
            check_trials([config], data_folder(data_dir), "cpu")
        except DataError as error:
            problems.append(str(error))
    if problems:
        raise DataError("; ".join([*problems, "`polysweep paper --rehearsal` needs none"]))


def show_paper(store: Store, options: PaperOptions) -> None:
    """Print what is left of every sweep, and what the whole costs by class of device; nothing is started."""
    left: list[SweepTrial] = []
    specs = specs_of(options)
    require_same(specs, store)
    for part, spec in zip(PARTS, specs, strict=True):
        planned = plan_launch(spec, store, options.launch.data_dir)
        counts = planned.plan.counts()
        ended = sum(counts[state] for state in FINAL)
        say(f"{spec.name} ({part.title}): {counts['trials']} trials, {ended} ended; {planned.estimate}")
        left += [trial for trial in planned.plan.trials if planned.plan.state(trial) not in FINAL]
    rows = hours_by_class(list({trial.trial_id: trial for trial in left}.values()), store)
    for device, hours, source in rows:
        unit = "core-hours" if "thread" in device else "GPU-hours"  # the name of a CPU says how many
        say(f"{hours:10.1f} {unit} on {device} ({source})")


def spent_hours(pulled: dict[str, RunSet], store: Store) -> dict[str, float]:
    """Hours that trials and their measurements took, by model of the device: of one core each, or of one GPU."""
    spent: dict[str, float] = {}
    seen: set[str] = set()  # a trial may be of several sweeps
    probes = ProbeFiles(store.files)
    for runs in pulled.values():
        names = ("trial_id", "device_model", "seconds", "width")
        rows = [row for row in zip(*(to_python(runs.runs[name]) for name in names), strict=True) if row[0] not in seen]
        for trial_id, device, seconds, width in rows:
            seen.add(trial_id)
            if seconds and width:
                spent[str(device)] = spent.get(str(device), 0.0) + seconds / width / 3600
        for settings in probes.settings(runs.protocol.name):
            for probe in probes.read([row[0] for row in rows], settings.key)[0].values():
                device = str(probe["provenance"].get("device_model"))
                spent[device] = spent.get(device, 0.0) + probe["seconds"] / 3600
    return spent
