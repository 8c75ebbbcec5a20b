"""From the Store or from W&B to two tidy frames, by one name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from polysweep.analysis.data.address import SCHEME, Address
from polysweep.analysis.data.cache import cache_root
from polysweep.analysis.data.frames import RunSet, names_of
from polysweep.analysis.data.from_store import pull_store
from polysweep.analysis.data.from_wandb import Request, last_request, pull_wandb, read_wandb
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.store.sweep_index import to_json
from polysweep.trainer.errors import UserError

DEFAULT_STORE = "./polysweep-store"


def pull(
    source: str,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    refresh: bool = True,
    spec: str | os.PathLike[str] | None = None,
    filters: Mapping[str, Any] | None = None,
    mapping: Mapping[str, str] | None = None,
    metric: str | None = None,
    goal: str | None = None,
    tuned: str | Iterable[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> RunSet:
    """Runs and history of a sweep in a Store, or of a `wandb://entity/project[/tag]`.

    Args:
        source: a sweep's name, or an address of W&B.
        store: the Store, by default `POLYSWEEP_STORE` or `./polysweep-store`.
        cache: the folder of the caches, by default `POLYSWEEP_CACHE` or `./polysweep-cache`.
        refresh: of W&B: whether to ask the server; else what the last pull fetched.

    The rest is for W&B, and is kept with the pull; what is not given is as at the last pull of the same address:

        spec: a sweep's file: the trials that there should be, what is tuned, the metric. By default the sweep named
            like the tag, where the Store has it.
        filters: W&B's own (MongoDB-like), such as `{"config.rho": 0.1, "state": "finished"}`.
        mapping: by our name theirs, such as `{"rho": "optimizer.radius", "seed": "random_seed", "test/top1": "acc"}`.
        metric, goal: what chooses epochs and tuned parameters, by default `test/top1`. `maximize` or `minimize` has to
            be said where the name of the metric does not (`acc`, `top1`, `loss`, `error` do).
        tuned: the config fields that are chosen per cell, none by default.
        ignore: config fields that tell no cells apart, such as an output folder.

    Raises `UserError` with what there is, where the source, runs, columns or fields are unknown.
    """
    if goal not in (None, "maximize", "minimize"):
        raise UserError(f"--goal: {goal!r}; expected maximize or minimize")
    folder = cache_root(cache)
    if not source.startswith(SCHEME):
        return pull_store(source, store_of(store), folder)
    address = Address.parse(source)
    if not refresh:
        return read_wandb(address, folder)
    asked = {
        "filters": None if filters is None else dict(filters),
        "mapping": None if mapping is None else dict(mapping),
        "metric": metric,
        "goal": goal,
        "tuned": None if tuned is None else names_of(tuned),
        "ignore": None if ignore is None else names_of(ignore),
    }
    request = _request(address, folder, asked, spec, store)
    return pull_wandb(address, request, folder, progress)


def _request(
    address: Address,
    folder: Path,
    asked: Mapping[str, Any],
    spec: str | os.PathLike[str] | None,
    store: Store | str | os.PathLike[str] | None,
) -> Request:
    """What is given now, else what was given before, else nothing."""
    from polysweep.sweeps.spec.spec import SweepSpec

    before = last_request(address, folder)
    kept = {} if before is None else {name: getattr(before, name) for name in (*asked, "spec")}
    empty: dict[str, Any] = {
        "filters": {},
        "mapping": {},
        "metric": None,
        "goal": None,
        "tuned": (),
        "ignore": (),
        "spec": None,
    }
    merged: dict[str, Any] = {**empty, **kept, **{name: value for name, value in asked.items() if value is not None}}
    explicit = any(asked[name] for name in ("mapping", "metric", "goal", "tuned", "ignore"))
    if spec is not None and explicit:
        raise UserError(
            "--spec says what is tuned and what selects: no --map, --metric, --goal, --tuned or --ignore beside it"
        )
    if spec is not None:
        merged["spec"] = to_json(SweepSpec.load(Path(spec), recorded=True).as_sweep())
    elif explicit:
        merged["spec"] = None
    elif merged["spec"] is None and before is None and address.tag:
        there = store_of(store)
        if address.tag in there.sweeps():
            merged["spec"] = to_json(there.launched(address.tag))
    return Request(**merged)


def store_of(store: Store | str | os.PathLike[str] | None) -> Store:
    """The Store, by its path or address; by default `POLYSWEEP_STORE` or `./polysweep-store`."""
    if isinstance(store, Store):
        return store
    return Store(str(store or os.environ.get("POLYSWEEP_STORE") or DEFAULT_STORE))
