"""Sweeps on a Ray cluster: as a Ray Job (`submit`), or with the driver here or on the head (`launch --address`).

Before Ray is asked for anything, the address is asked without a token: whether somebody answers there, and whether the
cluster demands one. Ray itself waits for minutes, and takes any token where none is demanded.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from polysweep.sweeps.cluster.access import _ALIVE, _CLIENT, _address_of_this_cluster, _answers, _check_grpc
from polysweep.sweeps.cluster.nodes import _check_nodes
from polysweep.sweeps.cluster.submit import _own_names
from polysweep.sweeps.commands.launch import Options, start, use_wandb_settings
from polysweep.sweeps.scheduling.driver import LaunchResult, Settings, launch
from polysweep.sweeps.scheduling.ray_environment import passed_on
from polysweep.sweeps.scheduling.ray_errors import cause_of
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.launches import stop
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.signals import Interruption
from polysweep.trainer.components.plugins import own_modules
from polysweep.trainer.errors import UserError

CLIENT_PORT: Final = 10001
ON_HEAD_SECONDS: Final = 12.0
"""For a driver on the head to stop in order."""


def start_at(address: str, spec: SweepSpec, store: Store, options: Options) -> int:
    """`polysweep launch --address`; returns the exit code.

    At `auto` the driver is this process; at `ray://` it is a task on the head, whose output is shown here.
    """
    use_wandb_settings(spec.project, spec.entity)
    if address == "auto":
        if not ray.is_initialized():  # else it is a task on the head, whose client has made the check
            _check_grpc(_address_of_this_cluster(), _ALIVE, options.insecure)
        return start(spec, store, options, lambda settings: _here(spec, settings))
    target = urlsplit(address)
    if target.scheme != "ray" or not target.hostname:
        raise UserError(f"--address {address!r}: expected auto, on a machine of the cluster, or ray://HOST:10001")
    place = f"{target.hostname}:{target.port or CLIENT_PORT}"
    _check_grpc(place, _CLIENT, options.insecure)
    with _connected(f"ray://{place}", spec):
        return _on_head(spec, store, options)


def _here(spec: SweepSpec, settings: Settings) -> LaunchResult:
    """The driver is this process."""
    with nullcontext() if ray.is_initialized() else _connected("auto", spec):
        is_alive = partial(_answers, ray.get_runtime_context().gcs_address)
        return launch(spec, replace(settings, is_alive=is_alive), lambda: _check_nodes(settings))


def _on_head(spec: SweepSpec, store: Store, options: Options) -> int:
    """The driver is a task on the head; Ctrl-C here asks it to stop."""
    head = next((node for node in ray.nodes() if "node:__internal_head__" in node["Resources"]), None)
    if head is None:
        raise UserError("the cluster has no head node")
    there = {**vars(options), "address": "auto", "launch_id": secrets.token_hex(8)}
    probe = f".probe-{secrets.token_hex(8)}"
    store.files.write(probe, b"")
    task = ray.remote(num_cpus=0, max_retries=0)(_drive).options(
        scheduling_strategy=NodeAffinitySchedulingStrategy(head["NodeID"], soft=False)
    )
    running = task.remote(spec.text, spec.name, store.root, there, probe)
    try:
        with Interruption.of_process().in_order(lambda: None, ON_HEAD_SECONDS) as interruption:
            while not ray.wait([running], timeout=0.5)[0]:
                if interruption.signal:
                    with suppress(UserError):
                        stop(store, spec.name, print, seconds=8.0, only=there["launch_id"])
                    return interruption.exit_code
        code, error = ray.get(running)
    except (ray.exceptions.RayError, ConnectionError) as lost:
        last = str(lost).strip().splitlines()[-1]
        raise UserError(f"the driver on the head was lost ({last}); the same command continues") from None
    finally:
        with suppress(UserError):
            store.files.remove(probe)
    time.sleep(1.0)  # its last lines come after its result
    if error:
        raise UserError(error)
    return int(code)


def _drive(text: str, name: str, store: str, options: dict[str, Any], probe: str) -> tuple[int, str]:
    """What runs on the head: the exit code, and the error of a user. `probe` is a file in the client's Store."""
    from polysweep.sweeps.spec.spec import SweepSpec
    from polysweep.sweeps.store.store import Store

    try:
        if not Store(store).files.exists(probe):
            return 2, f"the head does not see the Store {store} of this machine: use s3://, or a path that they share"
        return start_at("auto", SweepSpec.parse(text, f"{name}.yaml", name), Store(store), Options(**options)), ""
    except UserError as error:
        return 2, str(error)


@contextmanager
def _connected(address: str, spec: SweepSpec) -> Iterator[None]:
    """Ray's connection. A driver that is a Ray Job has the job's runtime environment already."""
    environment: dict[str, Any] = {}
    if "RAY_JOB_CONFIG_JSON_ENV_VAR" not in os.environ:
        environment = {"env_vars": passed_on()}
        if modules := [str(path) for path in own_modules(_own_names(spec))]:
            environment["py_modules"] = modules
    try:
        ray.init(address, runtime_env=environment, log_to_driver=True, logging_level=logging.ERROR)
    except (ConnectionError, ray.exceptions.RayError, RuntimeError) as error:
        raise UserError(f"--address {address}: {cause_of(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


# what an address answers
