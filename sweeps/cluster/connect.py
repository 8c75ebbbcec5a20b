"""`launch --address`: a sweep on a Ray cluster, with the driver in this process or as a task on the head."""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from polysweep.sweeps.cluster.access import answers, check_launch
from polysweep.sweeps.cluster.nodes import check_nodes
from polysweep.sweeps.cluster.submit import own_names
from polysweep.sweeps.commands.launch import start, use_wandb_settings
from polysweep.sweeps.console import warn
from polysweep.sweeps.job import LaunchOptions
from polysweep.sweeps.scheduling.driver import LaunchResult, launch
from polysweep.sweeps.scheduling.ray_environment import passed_on
from polysweep.sweeps.scheduling.ray_errors import RESUME, cause_of
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.launches import stop
from polysweep.sweeps.store.store import Store
from polysweep.sweeps.worker.signals import Interruption
from polysweep.trainer.components.plugins import own_modules
from polysweep.trainer.components.registry import working_folder
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import last_line

JOB: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable that a driver has that is a Ray Job."""
FORK_DIED: Final = "Starting Ray client server failed"
"""What Ray says if the process that a head forks for a client dies at once: gRPC's race, ray-project/ray#63202."""
CONNECTIONS: Final = 4
"""How often a connection is tried that ends so: on a new head one in two does, on an older one in twenty."""
ON_HEAD_SECONDS: Final = 12.0
"""How long a driver on the head may take to stop cleanly."""


def start_at(address: str, spec: SweepSpec, store: Store, options: LaunchOptions) -> int:
    """`polysweep launch --address`; returns the exit code.

    At `auto` the driver is this process; at `ray://` it is a task on the head, whose output is shown here.
    """
    use_wandb_settings(spec.project, spec.entity)
    if address == "auto" and ray.is_initialized():  # a task on the head, whose client has made the check
        return start(spec, store, options, _here)
    place = check_launch(address, options.insecure)
    if address == "auto":
        return start(spec, store, options, _here)
    with connected(f"ray://{place}", own_names(spec)):
        return _on_head(spec, store, options)


def _here(spec: SweepSpec, store: Store, options: LaunchOptions, data: str) -> LaunchResult:
    """The driver is this process."""
    with nullcontext() if ray.is_initialized() else connected("auto", own_names(spec)):
        is_alive = partial(answers, ray.get_runtime_context().gcs_address)
        # A job's working directory is sent to every node.
        folder = working_folder() if own_names(spec) and JOB not in os.environ else ""

        def check() -> None:
            check_nodes(store, options.wandb, folder, gpus=bool(spec.launch.gpus))

        return launch(spec, store, options, data, is_alive=is_alive, check=check)


def _on_head(spec: SweepSpec, store: Store, options: LaunchOptions) -> int:
    """The driver is a task on the head; Ctrl-C here asks it to stop."""
    head = next((node for node in ray.nodes() if "node:__internal_head__" in node["Resources"]), None)
    if head is None:
        raise UserError("the cluster has no head node")
    there = {**vars(options), "address": "auto", "launch_id": secrets.token_hex(8)}
    probe = f".probe-{secrets.token_hex(8)}"
    store.files.write(probe, b"")
    task = ray.remote(num_cpus=0, max_retries=0)(_drive).options(
        name="launch",  # before each line of what it prints
        scheduling_strategy=NodeAffinitySchedulingStrategy(head["NodeID"], soft=False),
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
        raise UserError(f"the driver on the head was lost ({last_line(lost)}); {RESUME}") from None
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
        return start_at("auto", SweepSpec.parse(text, f"{name}.yaml", name), Store(store), LaunchOptions(**options)), ""
    except UserError as error:
        return 2, str(error)


@contextmanager
def connected(address: str, own: Iterable[str]) -> Iterator[None]:
    """Ray's connection, on which a user's `own` parts travel.

    A driver that is a Ray Job has the job's runtime environment already.
    """
    environment: dict[str, Any] = {}
    if JOB not in os.environ:
        environment = {"env_vars": passed_on()}
        if modules := [str(path) for path in own_modules(own)]:
            environment["py_modules"] = modules
    try:
        _connect(address, environment)
        yield
    finally:
        ray.shutdown()


def _connect(address: str, environment: dict[str, Any]) -> None:
    """`ray.init`. Raises `UserError` if it fails."""
    for left in reversed(range(CONNECTIONS)):
        try:
            ray.init(address, runtime_env=environment, log_to_driver=True, logging_level=logging.ERROR)
            return
        except (ConnectionError, ray.exceptions.RayError, RuntimeError) as error:
            cause = cause_of(error)
            if not left or FORK_DIED not in cause:
                raise UserError(f"--address {address}: {cause}") from None
        ray.shutdown()
        warn(
            f"--address {address}: Ray's server for this client died as it started; trying again. With "
            "GRPC_ENABLE_FORK_SUPPORT=false in the environment of the head's `ray start` it does not"
        )
