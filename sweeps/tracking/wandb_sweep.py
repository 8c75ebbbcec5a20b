"""A sweep's registration as a W&B Sweep, whose page groups the runs. Polysweep schedules them: no agent is needed.

W&B calls that a local controller. A sweep is registered once per project; its id is kept in the Store, and every run
of its trials that is opened afterwards, online, offline or by `polysweep sync`, belongs to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from polysweep.sweeps.spec.sweep import Sweep, hashable
from polysweep.sweeps.store.files import OutOfReachError
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.wandb_server import Server
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import first_line
from polysweep.trainer.wandb_client import target_project
from polysweep.trainer.wandb_runs import Mode, logged_in

OPTION: Final = "--wandb-sweep"


def require_online(mode: Mode) -> None:
    """Raise `UserError` if a launch that is to register its sweep does not log online."""
    if mode != "online":
        raise UserError(
            f"{OPTION}: a W&B sweep is registered on the server, and --wandb is {mode}; expected online, or "
            f"`polysweep sync NAME {OPTION}` later"
        )


def registered(store: Store, names: Iterable[str]) -> str | None:
    """The id of the W&B sweep, in the project that runs are logged to, of the first of these sweeps that has one.

    A run of W&B belongs to one sweep at most.
    """
    for name in sorted(names):
        try:
            return str(json.loads(store.files.read(_path(name)) or b"")["id"])
        except OutOfReachError:  # it may be there: another one must not be registered
            raise
        except (ValueError, KeyError, TypeError):  # not one that was damaged: W&B only mirrors
            continue
    return None


def sweep_ids(store: Store, names: Mapping[str, Iterable[str]]) -> dict[str, str | None]:
    """By trial the id of `registered`, for the names of the sweeps that contain it; each set of names is read once."""
    sets = {trial_id: frozenset(some) for trial_id, some in names.items()}
    ids = {some: registered(store, some) for some in set(sets.values())}
    return {trial_id: ids[some] for trial_id, some in sets.items()}


def register(sweep: Sweep, store: Store, say: Callable[[str], None]) -> None:
    """Register a launched sweep, unless it is; those of its runs that the server has are added to it.

    Raises `UserError` if W&B is not logged in, cannot be reached, or refuses it.
    """
    if registered(store, [sweep.name]) is not None:
        return
    if not logged_in():
        raise UserError(f"{OPTION}: no W&B key; set WANDB_API_KEY, or run `wandb login`")
    server = Server()
    there = list(server.runs([trial.trial_id for trial in sweep.trials]))
    entity, _, project = server.project.partition("/")
    try:
        sweep_id = _create(sweep_config(sweep), entity, project, there)
    except Exception as error:
        raise UserError(f"{OPTION}: {server.project}: the sweep cannot be registered: {first_line(error)}") from None
    if store.files.create(_path(sweep.name), json.dumps({"project": server.project, "id": sweep_id}).encode()):
        say(f"{sweep.name}: registered as the W&B sweep {server.project}/{sweep_id}")


def sweep_config(sweep: Sweep) -> dict[str, Any]:
    """A launched sweep in the form of W&B: name, method, metric, parameters, and a local controller."""
    settings, metric = sweep.settings, sweep.metric
    target = {} if metric.target is None else {"target": metric.target}
    early = "" if settings.early_terminate == "none" else f"; early termination: {settings.early_terminate}"
    return {
        "name": sweep.name,
        "description": f"Trials are scheduled by polysweep, not by agents{early}.",
        "method": settings.method,
        "metric": {"name": metric.name, "goal": metric.goal, **target},
        "parameters": _parameters(sweep),
        "controller": {"type": "local"},
    }


def _parameters(sweep: Sweep) -> dict[str, Any]:
    """By field what it is drawn from, if all variants say the same of it, else the values that the trials have."""
    variants = json.loads(sweep.settings.space)["space"] if sweep.settings.space else []
    drawn: dict[str, list[Any]] = {}
    for variant in variants:
        for name, kept in variant.items():
            entry, of_field = _without_defaults(kept), drawn.setdefault(name, [])
            of_field += [entry] if entry not in of_field else []
    values: dict[str, dict[Any, Any]] = {}
    for trial in sweep.trials:
        for name, value in trial.values.items():
            values.setdefault(name, {})[hashable(value)] = value
    listed = {name: _entry(list(of_field.values())) for name, of_field in values.items()}
    first = {name: entries[0] for name, entries in drawn.items()}
    return {**first, **listed, **{name: one for name, one in first.items() if len(drawn[name]) == 1}}


def _without_defaults(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry as a spec has it: one that is kept also has what only some distributions use."""
    kind = entry.get("distribution", "")
    unused = {"mu", "sigma"} if "normal" not in kind else set()
    unused |= {"q"} if not kind.startswith("q_") else set()
    return {name: value for name, value in entry.items() if name not in unused}


def _entry(values: Sequence[Any]) -> dict[str, Any]:
    return {"value": values[0]} if len(values) == 1 else {"values": list(values)}


def _create(config: dict[str, Any], entity: str, project: str, run_ids: list[str]) -> str:
    """The id of a new W&B sweep. `wandb.sweep` prints, warns of itself, and sets the environment: none of it stays."""
    import wandb

    with _environment_kept(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(wandb.sweep(config, entity=entity, project=project, prior_runs=run_ids or None))


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ("WANDB_ENTITY", "WANDB_PROJECT")}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _path(name: str) -> str:
    """The file of a sweep's registration in the project that runs are logged to."""
    entity, project = target_project()
    digest = hashlib.sha256(f"{entity or ''}/{project}".encode()).hexdigest()[:8]
    return f"sweeps/{name}/wandb-sweep-{digest}.json"
