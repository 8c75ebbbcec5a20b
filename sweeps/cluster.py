"""Sweeps on a Ray cluster: as a Ray Job (`submit`), or with the driver here or on the head (`launch --address`).

Before Ray is asked for anything, the address is asked without a token: whether somebody answers there, and whether the
cluster demands one. Ray itself waits for minutes, and takes any token where none is demanded.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import secrets
import shlex
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
import ray
from ray.job_submission import JobStatus, JobSubmissionClient
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeps.interruption import Interruption
from sweeps.launch import LaunchResult, Settings, launch
from sweeps.provenance import THIS_VERSION, commit, said_version
from sweeps.ray_errors import cause_of
from sweeps.rayenv import passed_on
from sweeps.running import stop
from sweeps.spec import SweepSpec
from sweeps.start import Options, start, use_wandb_settings
from sweeps.store import Store
from trainer.plain_file import read_plain_file
from trainer.plugins import own_modules
from trainer.registry import UserError

LARGEST_REQUIREMENTS: Final = 2**20  # bytes
SECONDS: Final = 10.0
CLIENT_PORT: Final = 10001
HELLO_SECONDS: Final = 120.0
ON_HEAD_SECONDS: Final = 12.0
"""For a driver on the head to stop in order."""
START_SECONDS: Final = 6.0
"""How long a submitted job is watched for an error at its start."""
PACKAGES: Final = ("polysweep", "trainer", "sweeps", "analysis")
_ALIVE: Final = "/ray.rpc.NodeInfoGcsService/CheckAlive"
_CLIENT: Final = "/ray.rpc.RayletDriver/ClusterInfo"


def submit(
    spec: SweepSpec,
    address: str,
    store: str,
    *,
    wandb: str | None = None,
    data: str | None = None,
    flags: Sequence[str] = (),
    requirements: Path | None = None,
    insecure: bool = False,
) -> str:
    """Run `polysweep launch` as a Ray Job and return the job's id.

    The package, the spec and the user's own parts travel as the job's working directory, and the packages that the file
    `requirements` lists are installed for the job on every node. Raises `UserError` for an address where nobody
    answers, a token that is not taken, or a cluster that demands none.
    """
    packages = [] if requirements is None else _requirements(requirements)
    if "://" not in store and not Path(store).is_absolute():
        raise UserError(
            f"--store {store!r}: the job runs on the cluster; expected an absolute path that all nodes share, or s3://"
        )
    use_wandb_settings(spec.project, spec.entity)
    _check_dashboard(address, insecure)
    command = ["python", "-m", "polysweep", "launch", f"{spec.name}.yaml", "--store", store, *flags]
    command += ["--address", "auto"]
    for option, value in (("--wandb", wandb), ("--data-dir", data)):
        command += [] if value is None else [option, value]
    command += ["--insecure"] if insecure else []
    with _travelling(spec) as folder:
        logging.getLogger("ray").setLevel(logging.WARNING)
        try:
            client = JobSubmissionClient(address)
            job = str(
                client.submit_job(
                    entrypoint=shlex.join(command),
                    submission_id=f"polysweep-{spec.name}-{secrets.token_hex(4)}",
                    runtime_env=_what_travels(folder, packages),
                    metadata={"sweep": spec.name},
                )
            )
        except (RuntimeError, ConnectionError, ray.exceptions.RayError) as error:
            raise UserError(
                f"--address {address}: the job is not taken: {' '.join(str(error).split())[-400:]}"
            ) from None
    deadline = time.monotonic() + START_SECONDS
    with suppress(RuntimeError, OSError):  # the job goes on, whether it can be watched or not
        while time.monotonic() < deadline:
            if client.get_job_status(job) == JobStatus.FAILED:
                lines = client.get_job_logs(job).strip().splitlines() or ["no output"]
                raise UserError(f"the job {job} has failed: {lines[-1]}")
            time.sleep(0.5)
    return job


def _what_travels(folder: Path, packages: Sequence[str]) -> dict[str, Any]:
    """The job's runtime environment: the folder, settings, packages; no credential is among it."""
    settings = {**passed_on(), "POLYSWEEP_COMMIT": commit() or ""}
    installed = {"pip": {"packages": list(packages), "pip_check": False}} if packages else {}
    return {"working_dir": str(folder), "env_vars": settings, **installed}


def _requirements(path: Path) -> list[str]:
    """The lines of a requirements file. Options are refused: they can hold an index with its password."""
    try:
        text = read_plain_file(path, LARGEST_REQUIREMENTS).decode()
        lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    except (OSError, ValueError) as error:
        raise UserError(f"--requirements {path}: cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        option = line.split()[0].partition("=")[0] if line.startswith("-") else ""
        if option or "@" in line.partition("://")[2]:
            what = f"the option {option}" if option else "an address with a login"
            raise UserError(
                f"{path}:{number}: {what} does not travel: a job's metadata is open to all; expected packages such as "
                "my-lab==1.2, and the rest in the nodes' own pip configuration"
            )
    return [line for line in lines if line and not line.startswith("#")]


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
    from sweeps.spec import SweepSpec
    from sweeps.store import Store

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


def _own_names(spec: SweepSpec) -> set[str]:
    """The import paths of the user's own parts."""
    found = {getattr(config, kind) for config in spec.kinds for kind in ("task", "model", "optimizer", "scheduler")}
    return {name for name in found if ":" in name}


@contextmanager
def _travelling(spec: SweepSpec) -> Iterator[Path]:
    """A folder with the package, the spec and the user's own parts."""
    with tempfile.TemporaryDirectory(prefix="polysweep-job-") as temporary:
        folder = Path(temporary)
        package = Path(__file__).resolve().parent.parent
        sources = [*(package / name for name in PACKAGES), *own_modules(_own_names(spec))]
        for source in sources:
            if source.is_dir():
                shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / source.name)
        (folder / f"{spec.name}.yaml").write_text(spec.text)
        yield folder


# what an address answers


def _check_dashboard(address: str, insecure: bool) -> None:
    """Whether the dashboard of a cluster answers there, demands a token, and takes ours."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise UserError(f"--address {address!r}: expected the dashboard of a cluster, http://HOST:8265")
    code, body = _get(f"{address.rstrip('/')}/api/version", "")
    if code == 200 and not insecure:
        raise UserError(_demands_none(address))
    if code == 200:
        try:
            json.loads(body)["ray_version"]
        except (ValueError, KeyError):
            raise UserError(f"--address {address}: that is no dashboard of a Ray cluster") from None
        return
    if code not in (401, 403):
        raise UserError(f"--address {address}: answers {code}; expected the dashboard of a Ray cluster")
    os.environ["RAY_AUTH_MODE"] = "token"  # also where --insecure was given and is not needed
    token = _token()
    code, _ = _get(f"{address.rstrip('/')}/api/version", token)
    if code != 200:
        raise UserError(_refused(address, token))


def _get(url: str, token: str) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=SECONDS) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise UserError(f"--address {url.partition('/api')[0]}: nobody answers there ({reason})") from None


def _check_grpc(target: str, method: str, insecure: bool) -> None:
    """The same of the port that drivers or clients connect to."""
    code = _call(target, method, "")
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        raise UserError(f"--address {target}: nobody answers there ({code.name.lower()})")
    if code is not grpc.StatusCode.UNAUTHENTICATED:
        if not insecure:
            raise UserError(_demands_none(target))
        return
    os.environ["RAY_AUTH_MODE"] = "token"  # also where --insecure was given and is not needed
    token = _token()
    if _call(target, method, token) is grpc.StatusCode.UNAUTHENTICATED:
        raise UserError(_refused(target, token))


def _call(target: str, method: str, token: str) -> grpc.StatusCode:
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary(method)(b"", timeout=SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            found: grpc.StatusCode = error.code()
            return found
    return grpc.StatusCode.OK


def _answers(target: str) -> bool:
    return _call(target, _ALIVE, _token()) not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def _token() -> str:
    """As Ray finds it: RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, ~/.ray/auth_token."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _demands_none(address: str) -> str:
    return (
        f"--address {address}: the cluster does not demand a token, so whoever reaches it can run code on it; start it "
        "with RAY_AUTH_MODE=token, or pass --insecure"
    )


def _refused(address: str, token: str) -> str:
    given = "does not take this token" if token else "demands a token and none is given"
    return f"--address {address}: the cluster {given}: set RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token"


def _address_of_this_cluster() -> str:
    from ray._private.services import get_ray_address_from_environment

    try:
        return str(get_ray_address_from_environment("auto", None))
    except (ConnectionError, RuntimeError):
        raise UserError("--address auto: no Ray cluster runs on this machine, and RAY_ADDRESS is not set") from None


def _check_nodes(settings: Settings) -> None:
    """Ask every node: the same version of the package, the same Store, a W&B key where runs are logged online."""
    store = settings.store
    probe = f".probe-{secrets.token_hex(8)}"
    store.files.write(probe, b"")
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        hello = ray.remote(num_cpus=0, max_retries=0)(_hello(store.root, probe))
        asked = {
            node["NodeManagerAddress"]: hello.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote()
            for node in nodes
        }
        for node, reference in asked.items():
            try:
                said = ray.get(reference, timeout=HELLO_SECONDS)
            except Exception as error:
                last = str(error).strip().splitlines()[-1]
                raise UserError(f"the node {node} cannot run polysweep: {last}") from None
            if said["version"] != THIS_VERSION:
                here, there = said_version(THIS_VERSION), said_version(said["version"])
                raise UserError(f"the worker on node {node} runs {there}, the driver {here}: install the same on both")
            if not said["store"]:
                raise UserError(
                    f"the node {node} does not see the Store {store.root}: use a file system that all nodes share, or s3://"
                )
            if settings.wandb == "online" and not said["key"]:
                raise UserError(
                    f"the node {node} has no W&B login: set WANDB_API_KEY in the environment of its Ray, "
                    "or use --wandb offline"
                )
    finally:
        store.files.remove(probe)


def _hello(root: str, probe: str) -> Callable[[], dict[str, Any]]:
    """What a node answers. A function inside a function travels whole: the node's package may be another version."""

    def hello() -> dict[str, Any]:
        from sweeps.provenance import THIS_VERSION
        from sweeps.store import Store
        from trainer.tracking import logged_in

        return {"version": dict(THIS_VERSION), "store": Store(root).files.exists(probe), "key": logged_in()}

    return hello
