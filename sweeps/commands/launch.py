"""`polysweep launch`: everything around the scheduling, from the checks before it to the summary after it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from polysweep.sweeps.commands.printing import ended, show_failures, show_holders
from polysweep.sweeps.commands.retry import retry
from polysweep.sweeps.console import say, warn
from polysweep.sweeps.job import LaunchOptions
from polysweep.sweeps.planning.decide import open_pairs, settled
from polysweep.sweeps.planning.decision_lines import decision_lines
from polysweep.sweeps.planning.plan import Plan
from polysweep.sweeps.planning.plan import plan as make_plan
from polysweep.sweeps.planning.preflight import check_cores, check_trials, data_folder, remarks
from polysweep.sweeps.planning.sources import changed_sources
from polysweep.sweeps.planning.spec_changes import Extension, as_launched, check_claims, check_looks, compare
from polysweep.sweeps.planning.target import is_target_reached
from polysweep.sweeps.planning.widths import Widths
from polysweep.sweeps.spec.remarks import remarks_on_spec
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.preregistered import freeze_claims
from polysweep.sweeps.store.states import FINAL, State
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.sync import complete
from polysweep.sweeps.tracking.wandb_sweep import register, require_online
from polysweep.trainer.components.plugins import component, direction_of
from polysweep.trainer.errors import UserError
from polysweep.trainer.wandb_runs import Mode

if TYPE_CHECKING:
    from polysweep.sweeps.scheduling.driver import LaunchResult

Run = Callable[[SweepSpec, Store, LaunchOptions, str], "LaunchResult"]
PATIENCE_SECONDS: Final = 600.0


def patience() -> float:
    """Seconds that a launch waits for an unreachable Store: POLYSWEEP_STORE_PATIENCE, else ten minutes."""
    setting = os.environ.get("POLYSWEEP_STORE_PATIENCE")
    try:
        seconds = PATIENCE_SECONDS if not setting else float(setting)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UserError(f"POLYSWEEP_STORE_PATIENCE: {setting!r}; expected a number of seconds >= 0")
    return seconds


def start(spec: SweepSpec, store: Store, options: LaunchOptions, run: Run | None = None) -> int:
    """Run what is left of a sweep; returns the exit code. Raises `UserError` before anything is started.

    `run` schedules it, by default on a Ray of this process's own.
    """
    if options.wandb_sweep:
        require_online(options.wandb)
    data = data_folder(options.data_dir, spec.launch.data_dir)
    spec = as_launched(spec, store)
    extension = compare(spec, store)
    if extension.changed and not options.extend:
        raise UserError(
            f"the sweep name {spec.name!r} is in use by another spec ({'; '.join(extension.changed)}): --extend keeps "
            "its trials and adds those of this one; else give this one another name"
        )
    # The workers of a cluster look for measurements of their own device.
    widths = Widths(spec, data, store=None if options.address else store)
    if options.retry_failed:
        before = make_plan(spec, store.states(spec), widths=widths)
        failed = [trial for trial in before.trials if before.state(trial) == State.FAILED]
        count = retry(store, {t.trial_id: before.width(t) if widths.is_measured(t) else None for t in failed})
        print(f"{spec.name}: {count} failed trials are tried again", flush=True)
    undecided = spec
    spec, states, records = settled(undecided, store, keep=False)
    plan = make_plan(spec, states, widths=widths)
    starting = [stack.trials[0].config for stack in plan.stacks]
    reason = _reason_to_end(plan, store)
    if options.address is None and not reason:
        check_cores(spec.launch.cpus)
    check_trials([] if reason else [*starting, *spec.corners], data, spec.launch.device)
    notes = [*plan.notes, *_changes_of_device(plan, store), *changed_sources(plan.trials, records)]
    for warning in [*warnings(spec), *notes]:
        warn(warning)
    begun = sum(state.state != State.NEW for state in plan.states.values())
    freeze_claims(store.files, spec.name, spec.preregistration, begun)
    check_claims(spec, store, is_launched=extension.known)  # another launch may have been faster
    check_looks(spec, store)
    if spec.replicate:
        compared = [trial for trial in plan.trials if trial.is_added or not spec.protocol]
        store.search.begin_looks(spec.name, sum(plan.state(trial) != State.NEW for trial in compared))
    store.write_sweep(undecided, plan.planned_widths)
    if spec is not undecided:
        spec = settled(undecided, store, keep=True)[0]
        store.write_sweep(spec, plan.planned_widths)
    store.remove_leftovers(spec.name, [i for i, state in plan.states.items() if state.state in FINAL])
    use_wandb_settings(spec.project, spec.entity)
    if options.wandb_sweep:
        register(store.launched(spec.name), store, say)
    counts = plan.counts()
    if reason:
        print(f"{spec.name}: nothing to start, {reason} ({ended(counts)})", flush=True)
        _say_decisions(spec, plan, store)
        _complete_wandb(plan, store, options.wandb)
        show_failures(plan.states, store)
        return 1 if counts[State.FAILED] else 0
    _say_what_starts(plan, extension, options, store)
    return _run(spec, store, options, data, run)


def _reason_to_end(plan: Plan, store: Store) -> str:
    """Why a sweep has nothing left to start; empty if something is left."""
    counts = plan.counts()
    if counts[State.RUNNING]:
        return ""
    if is_target_reached(plan.spec.metric, store, plan.states):
        return f"{plan.spec.metric.name} has reached its target {plan.spec.metric.target}"
    if plan.stacks or (plan.proposals_left and not store.search.is_exhausted(plan.spec.name)):
        return ""
    return f"all {counts['trials']} trials have ended"


def _run(spec: SweepSpec, store: Store, options: LaunchOptions, data: str, run: Run | None) -> int:
    if options.verbose:
        os.environ["WANDB_SILENT"] = "false"
    from polysweep.sweeps.scheduling.ray_environment import prepare

    prepare(options.address, options.insecure, verbose=options.verbose)
    from polysweep.sweeps.scheduling.driver import launch

    store.files.patience = patience()
    result = (run or launch)(spec, store, options, data)
    after = make_plan(result.spec, result.states)
    if result.exit_code < 128:  # not interrupted
        _complete_wandb(after, store, options.wandb)
    counts = after.counts()
    left = counts[State.NEW] + counts[State.INTERRUPTED] + counts[State.RUNNING]
    again = f", {left} left: launch again" if left and not result.reason else ""
    say(f"{spec.name}: {ended(counts) or '0 ended'}{again}" + (f"; {result.reason}" if result.reason else ""))
    _say_decisions(result.spec, after, store)
    show_failures(result.states, store)
    return result.exit_code


def _say_decisions(spec: SweepSpec, plan: Plan, store: Store) -> None:
    """What results have decided, if it is for them to decide something."""
    if spec.decides:
        for line in decision_lines(spec.settings, store.search.decisions(spec.name), plan.trials):
            say(line)
        from polysweep.sweeps.planning.ahead import lines_ahead  # scipy takes its time

        if open_pairs(spec) or plan.counts()[State.FAILED]:
            for line in lines_ahead(spec, store, plan.states):
                say(line)


def warnings(spec: SweepSpec) -> list[str]:
    """What is allowed but probably not intended."""
    texts = [*spec.notes, *remarks_on_spec(spec)]
    better = {direction_of(component("task", config.task), spec.metric.name) for config in [*spec.kinds, *spec.corners]}
    if better and spec.metric.goal not in better and None not in better:
        texts.append(f"metric {spec.metric.name!r} has the goal {spec.metric.goal}, but its task says {better.pop()}")
    return list(dict.fromkeys([*texts, *(text for config in [*spec.kinds, *spec.corners] for text in remarks(config))]))


def _say_what_starts(plan: Plan, extension: Extension, options: LaunchOptions, store: Store) -> None:
    counts = plan.counts()
    more = f", up to {plan.proposals_left} points to be proposed" if plan.proposals_left else ""
    print(
        f"{plan.spec.name}: {counts['trials']} trials in {len(plan.members)} cells: "
        f"{counts['new']} new, {counts['interrupted']} to continue, {counts['running']} running elsewhere, "
        f"{ended(counts) or '0 ended'}{more}",
        flush=True,
    )
    if plan.spec.repetition:
        print(plan.spec.repetition, flush=True)
    if plan.spec.description:
        say(plan.spec.description)
    if extension.gone:
        print(f"{extension.gone} trials are no longer in the spec; their results are kept", flush=True)
    show_holders(plan.states)
    if options.wandb == "offline" and not store.is_local:
        print(f"offline W&B runs are written to {store.wandb_folder}", flush=True)


def use_wandb_settings(project: str | None, entity: str | None) -> None:
    """Log to a sweep's project and entity, unless the environment names others."""
    for name, value in (("WANDB_PROJECT", project), ("WANDB_ENTITY", entity)):
        if value is not None and not os.environ.get(name):
            os.environ[name] = value


def _changes_of_device(plan: Plan, store: Store) -> list[str]:
    """Warnings about trials that continue on another kind of device: their numbers may differ in the last bits."""
    from polysweep.sweeps.store.provenance import differences, provenance

    launch = plan.spec.launch
    changes: Counter[str] = Counter()
    for trial in plan.trials:
        if plan.state(trial) == State.INTERRUPTED and plan.states[trial.trial_id].epoch:
            before = (store.record(trial.trial_id) or {}).get("provenance", {})
            changes[differences(before, provenance(launch.device, launch.cpus))] += 1
    return [f"{count} trials continue on another kind of device: {text}" for text, count in changes.items() if text]


def _complete_wandb(plan: Plan, store: Store, mode: Mode) -> None:
    """Write the runs of ended trials that W&B lacks, for example because a launch was killed between the two."""
    there = [t for t in plan.trials if plan.state(t) in FINAL and not plan.states[t.trial_id].damage]
    complete({trial.trial_id: trial.values for trial in there}, store, mode)
