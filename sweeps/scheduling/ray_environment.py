"""What Ray reads from the environment, set before it is imported: loopback and a token for a Ray of our own."""

from __future__ import annotations

import os
import secrets
from collections.abc import MutableMapping
from typing import Final

SILENT: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # Tune's own folder is not where a user's relative paths lead
    "RAY_AIR_NEW_OUTPUT": "0",  # the new one prints a table even when told to be silent
    "RAY_gcs_server_port_wait_time_s": "120",  # its 30 s are not enough on a busy machine
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": str(10**9),  # Tune's own snapshot is never restored
    "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": str(10**9),
}
PASSED_ON: Final = ("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_BASE_URL", "WANDB_SILENT", "AWS_ENDPOINT_URL",
                    "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION", "AWS_REGION", "POLYSWEEP_STORE_PATIENCE")  # fmt: skip
"""What travels to a cluster's workers. Credentials are not among them: they are in the cluster's own environment."""


_TOKEN: Final = secrets.token_hex(32)
"""One for all launches of a process: Ray reads it once."""


def prepare(
    address: str | None, insecure: bool, environment: MutableMapping[str, str] = os.environ, *, verbose: bool = False
) -> None:
    """Set what is needed for a Ray of this process's own, or for the cluster at `address`."""
    for name, value in SILENT.items():
        environment.setdefault(name, value)
    if address is None:
        # Everything of a local Ray listens on loopback only, and asks for a token of this process.
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        environment["RAY_AUTH_MODE"] = "token"
        environment["RAY_AUTH_TOKEN"] = _TOKEN
        environment.setdefault(
            "RAY_prestart_worker_first_driver", "0"
        )  # they would start beside our actors and stay idle
        if not verbose:
            environment["RAY_DEDUP_LOGS_SKIP_REGEX"] = "."  # else pages of a raylet's log are printed when it dies
    else:
        environment.setdefault("RAY_AUTH_MODE", "disabled" if insecure else "token")


def passed_on(environment: MutableMapping[str, str] = os.environ) -> dict[str, str]:
    """The settings that travel, as far as they are given."""
    return {name: environment[name] for name in PASSED_ON if environment.get(name)}
