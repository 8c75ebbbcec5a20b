"""A sweep as a Ray Job: what travels to the cluster, and the job itself."""

from __future__ import annotations

import logging
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import polysweep
from polysweep.sweeps.cluster.access import check_dashboard
from polysweep.sweeps.commands.launch import use_wandb_settings
from polysweep.sweeps.scheduling.ray_environment import passed_on
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.provenance import commit
from polysweep.trainer.components.plugins import own_modules
from polysweep.trainer.errors import UserError
from polysweep.trainer.plain_file import read_plain_file

LARGEST_REQUIREMENTS: Final = 2**20  # bytes


START_SECONDS: Final = 6.0
"""How long a submitted job is watched for an error at its start."""


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
    `requirements` lists are installed for the job on every node. Raises `UserError` if no server
    answers, if the cluster does not accept the token, or if it demands none.
    """
    packages = [] if requirements is None else _requirements(requirements)
    if "://" not in store and not Path(store).is_absolute():
        raise UserError(
            f"--store {store!r}: the job runs on the cluster; expected an absolute path that all nodes share, or s3://"
        )
    use_wandb_settings(spec.project, spec.entity)
    check_dashboard(address, insecure)  # before Ray is imported, which takes seconds
    import ray
    from ray.job_submission import JobStatus, JobSubmissionClient

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
                f"--address {address}: the cluster does not accept the job: {' '.join(str(error).split())[-400:]}"
            ) from None
    deadline = time.monotonic() + START_SECONDS
    with suppress(RuntimeError, OSError):  # the job continues, whether it can be watched or not
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
                f"{path}:{number}: {what} cannot be sent: everybody can read a job's metadata; expected packages "
                "such as my-lab==1.2, and the rest in the nodes' own pip configuration"
            )
    return [line for line in lines if line and not line.startswith("#")]


def own_names(spec: SweepSpec) -> set[str]:
    """The import paths of the user's own parts."""
    configs = [*spec.kinds, *spec.corners]
    names = {getattr(config, kind) for config in configs for kind in ("task", "model", "optimizer", "scheduler")}
    return {name for name in names if ":" in name}


@contextmanager
def _travelling(spec: SweepSpec) -> Iterator[Path]:
    """A folder with the package, the spec and the user's own parts."""
    with tempfile.TemporaryDirectory(prefix="polysweep-job-") as temporary:
        folder = Path(temporary)
        sources = [Path(polysweep.__file__).parent, *own_modules(own_names(spec))]
        for source in sources:
            if source.is_dir():
                shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, folder / source.name)
        (folder / f"{spec.name}.yaml").write_text(spec.text)
        yield folder
