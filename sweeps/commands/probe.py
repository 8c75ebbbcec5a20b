"""`polysweep probe`: curvature, and accuracy on corrupted images, of the trained trials of a sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from polysweep.sweeps.commands.launch import patience
from polysweep.sweeps.console import say, warn
from polysweep.sweeps.job import LaunchOptions, ProbeJob
from polysweep.sweeps.planning.preflight import check_cores, check_trials, data_folder
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.sweep import Resources, Sweep, SweepTrial
from polysweep.sweeps.spec.yaml_lines import read_yaml
from polysweep.sweeps.store.checkpoints import NEWEST
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.probes import ProbeFiles
from polysweep.sweeps.store.states import State, TrialState
from polysweep.sweeps.store.store import Store
from polysweep.trainer.device import missing_cuda
from polysweep.trainer.errors import UserError
from polysweep.trainer.probe.measurable import require_measurable
from polysweep.trainer.probe.settings import CorruptionSettings, CurvatureSettings, Measurement

MEASURED: Final = (State.FINISHED, State.STOPPED)
"""Outcomes of trials that have weights to measure; a diverged one has none that mean anything."""
WIDEST: Final = 8
"""Trials that are measured as one stack: a second derivative takes more memory than the training did."""


@dataclass(frozen=True)
class ProbeOptions:
    """What a probe is told besides its settings."""

    data_dir: str | None = None
    address: str | None = None  # of a cluster; None: a Ray of this process's own
    insecure: bool = False
    verbose: bool = False
    device: str | None = None  # cpu or cuda; None: what the trials were trained on


def measure_sweep(name: str, store: Store, measurements: Sequence[Measurement], options: ProbeOptions) -> int:
    """Measure every ended trial of a sweep that has not been measured so; returns the exit code.

    Raises `UserError`, before anything starts, if no trial has a checkpoint, a task cannot be measured so, or the
    device is not there.
    """
    sweep = store.launched(name)
    resources = _resources(sweep, options)
    states = store.states(sweep)
    ended = [trial for trial in sweep.trials if states[trial.trial_id].state in MEASURED]
    if not ended:
        outcomes = Counter(str(state.state) for state in states.values())
        listed = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        raise UserError(f"{name}: no trial has finished ({listed}); launch it first")
    probes = ProbeFiles(store.files)
    with suppress(StoreError):  # damaged settings are written again
        kept = probes.settings(name)
        measurements = [one.beside(kept) for one in measurements]
    missing = {one.key: _not_measured(ended, states, probes, one) for one in measurements}
    folder = data_folder(options.data_dir, _data_dir_of(sweep))
    for one in measurements:
        _check(missing[one.key], one, folder, resources.device)
    before = sum(len(ended) - len(trials) for trials in missing.values())
    lacking = _without_checkpoint(name, store, [trial for trials in missing.values() for trial in trials], before)
    jobs = []
    for one in measurements:
        trials = [trial for trial in missing[one.key] if trial.trial_id not in lacking]
        jobs += list(_jobs(trials, one, store, folder, resources))
    count = sum(len(job.trials) for job in jobs)
    kinds = " and ".join(one.kind for one in measurements)
    if not jobs:
        there = len(ended) - len(lacking)
        which = f"all {there}" if not lacking else f"{there} of {len(ended)}"
        _keep(name, probes, measurements)
        print(f"{name}: {kinds}: nothing to measure, {which} ended trials are measured", flush=True)
        return 0
    print(f"{name}: {kinds}: {count} measurements to make, {before} are there", flush=True)
    measured, errors = _run(jobs, resources, sweep, store, options)
    _keep(name, probes, measurements)
    say(f"{name}: {measured} of {count} measurements made")
    for error in errors:
        warn(error)
    return 1 if errors else 0


def asked_by(spec: SweepSpec, data_dir: str | None) -> list[Measurement]:
    """What `launch.probe` asks for. Raises `UserError`, before a launch, if a task cannot be measured so."""
    names = [name for name in spec.launch.probe if name != CurvatureSettings.kind]
    measurements: list[Measurement] = [CurvatureSettings()] if len(names) < len(spec.launch.probe) else []
    measurements += [CorruptionSettings.of(names, None)] if names else []
    for one in measurements:
        for config in spec.kinds:
            require_measurable(config, one, data_folder(data_dir, spec.launch.data_dir))
    return measurements


def measure_at_the_end(
    code: int, spec: SweepSpec, store: Store, measurements: Sequence[Measurement], options: LaunchOptions
) -> int:
    """Measure the trials of a launch that has come to its end with this exit code; returns that of both."""
    is_over = code < 2 and any(state.state in MEASURED for state in store.states(spec).values())
    if not measurements or not is_over:
        return code
    place = ProbeOptions(options.data_dir, options.address, options.insecure, options.verbose)
    return max(code, measure_sweep(spec.name, store, measurements, place))


def _keep(name: str, probes: ProbeFiles, measurements: Sequence[Measurement]) -> None:
    """Once a probe has come to its end, tables show what it has measured."""
    for one in measurements:
        probes.keep_settings(name, one)


def _not_measured(
    trials: Sequence[SweepTrial], states: Mapping[str, TrialState], probes: ProbeFiles, one: Measurement
) -> list[SweepTrial]:
    """The trials without such a measurement, and those that have been trained on since."""
    there, damage = probes.read([trial.trial_id for trial in trials], one.key)
    for text in damage:
        warn(f"{text}; measured again")

    def is_measured(trial_id: str) -> bool:
        probe = there.get(trial_id)
        return probe is not None and one.is_in(probe["columns"]) and probe["trained"] == states[trial_id].epoch

    return [trial for trial in trials if not is_measured(trial.trial_id)]


def _without_checkpoint(name: str, store: Store, trials: Sequence[SweepTrial], measured: int) -> set[str]:
    """The ids of those that have none. Raises `UserError` if none has one, and nothing has been `measured` before."""
    paths = {f"trials/{trial.trial_id}/{NEWEST}": trial.trial_id for trial in trials}
    there = {paths[path] for path in store.files.stamps(paths)}
    lacking = [trial_id for trial_id in paths.values() if trial_id not in there]
    if lacking:
        what = f"{len(lacking)} of the trials, such as {lacking[0]}, have no checkpoint"
        why = "launch.keep: none, or it was removed"
        if not there and not measured:
            raise UserError(f"{name}: {what} ({why}): only weights can be measured; train with launch.keep: last")
        warn(f"{name}: {what} ({why}) and are not measured")
    return set(lacking)


def _resources(sweep: Sweep, options: ProbeOptions) -> Resources:
    """What a stack is measured on: what it was trained on, or the device that is asked for.

    Raises `UserError` if this machine does not have that.
    """
    resources = sweep.settings.launch
    if options.device is not None:
        resources = replace(resources, gpus=(resources.gpus or 1.0) if options.device == "cuda" else 0.0)
    if options.address is None:
        check_cores(resources.cpus)
        if resources.gpus and (reason := missing_cuda()):
            raise UserError(f"{sweep.name}: torch can use no GPU here: {reason}; --device cpu measures on the CPU")
    return resources


def _check(trials: Sequence[SweepTrial], one: Measurement, folder: str, device: str) -> None:
    """Raise `UserError` if a task cannot be measured so, data is missing, or today's code does not know a config."""
    configs = {trial.signature: trial.config for trial in trials}
    check_trials(configs.values(), folder, device)
    for config in configs.values():
        require_measurable(config, one, folder)


def _jobs(
    trials: Sequence[SweepTrial], one: Measurement, store: Store, folder: str, resources: Resources
) -> Iterator[ProbeJob]:
    """The trials of each signature, as many at once as were trained at once, but no more than `WIDEST`."""
    groups: dict[tuple[str, int], list[SweepTrial]] = {}
    for trial in trials:
        groups.setdefault((trial.signature, min(trial.width or 1, WIDEST)), []).append(trial)
    for (_, width), members in groups.items():
        for rows in (members[at : at + width] for at in range(0, len(members), width)):
            yield ProbeJob(
                store=store.root,
                trials={trial.trial_id: trial.config.canonical() for trial in rows},
                kind=one.kind,
                settings=one.model_dump(mode="json"),
                device=resources.device,
                data=folder,
                threads=resources.cpus,
                patience=patience(),
            )


def _data_dir_of(sweep: Sweep) -> str | None:
    """`launch.data_dir` of the spec as launched."""
    data, _ = read_yaml(sweep.text, f"the spec of {sweep.name} as launched")
    launch = data.get("launch") if isinstance(data, dict) else None
    folder = launch.get("data_dir") if isinstance(launch, dict) else None
    return folder if isinstance(folder, str) else None


def _run(
    jobs: Sequence[ProbeJob], resources: Resources, sweep: Sweep, store: Store, options: ProbeOptions
) -> tuple[int, Sequence[str]]:
    """On a Ray of this process's own, or on a cluster."""
    from polysweep.sweeps.scheduling.ray_environment import prepare

    prepare(options.address, options.insecure, verbose=options.verbose)
    place = options.address
    if place is not None:
        from polysweep.sweeps.cluster.access import check_launch

        place = check_launch(place, options.insecure)  # before Ray is imported, which takes seconds
    from polysweep.sweeps.scheduling.probe_driver import run_jobs

    store.files.patience = patience()
    if place is None:
        return run_jobs(jobs, resources, verbose=options.verbose)
    from polysweep.sweeps.cluster.connect import connected

    own = {name for trial in sweep.trials for name in trial.values.values() if isinstance(name, str) and ":" in name}
    with connected("auto" if options.address == "auto" else f"ray://{place}", own):
        return run_jobs(jobs, resources, address=place, verbose=options.verbose)
