"""What can be found wrong before a trial is claimed: missing data, batches that are too large, devices."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from polysweep.trainer.components.component import load
from polysweep.trainer.components.plugins import component
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.cpus import usable_cpus
from polysweep.trainer.device import check_precision
from polysweep.trainer.errors import ConfigError, UserError
from polysweep.trainer.rehearsal import rehearse

DEFAULT_DATA: Final = "./polysweep-data"


def data_folder(option: str | None, spec: str | None = None) -> str:
    """The folder of the data sets: `--data-dir` or POLYSWEEP_DATA, else the spec's `launch.data_dir`, else the default.

    Absolute: a worker has another working directory.
    """
    if option == "":
        raise UserError("--data-dir or POLYSWEEP_DATA: empty; expected the folder of the data sets")
    folder = option or spec or DEFAULT_DATA
    try:
        return str(Path(folder).expanduser().absolute())
    except RuntimeError:  # of `~somebody`
        raise UserError(
            f"{'--data-dir or POLYSWEEP_DATA' if option else 'launch.data_dir'}: {folder}: no such user"
        ) from None


def check_trials(configs: Iterable[TrialConfig], data: str, device: str) -> None:
    """Look at the data, and at the device's precision, of every config.

    Raises `UserError`: `DataError` if data is missing or damaged, `ConfigError` if a config does not fit.
    """
    seen = set()
    for config in configs:
        fixed = ("seed", "rho", "lr", "lr_min", "gamma_b", "lower_bound", "weight_decay", "epochs")
        key = repr(config.model_dump(exclude=set(fixed)))
        if key in seen:
            continue
        seen.add(key)
        check_precision(config.precision, device)
        task = component("task", config.task)
        if task.prepare:
            try:
                load(task.prepare)(Path(data))
            except UserError:
                raise
            except (Exception, SystemExit) as error:  # of a user's own task
                raise ConfigError("task", f"{config.task!r}: prepare fails: {type(error).__name__}: {error}") from None
        rehearse(config, data)


def check_cores(cpus: int) -> None:
    """Raise `UserError` if this machine does not have the cores of one stack."""
    if cpus > usable_cpus():
        raise UserError(f"launch.cpus: {cpus} per stack, but this machine has {usable_cpus()} cores")


def remarks(config: TrialConfig) -> list[str]:
    """What is allowed but probably not intended."""
    texts = []
    if component("scheduler", config.scheduler).along_gradient and config.momentum:
        texts.append(
            f"momentum with scheduler {config.scheduler}: the step size is derived for a step along "
            "the gradient alone, and the paper uses none"
        )
    if config.scheduler == "cosine" and config.epochs == 1:
        texts.append("scheduler cosine with epochs 1 is the constant step size lr")
    for name in {"adamw", "sgdw"} & {config.optimizer, config.base}:
        if not config.weight_decay:
            texts.append(f"{name} with weight_decay 0 is {name.removesuffix('w')}; torch's AdamW has 0.01 by default")
    return texts
