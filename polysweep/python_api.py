"""The commands plan, launch and train as functions, for scripts and notebooks.

`plan` is computed in the calling process. `launch` and `train` run the command of that name in a process of its own.
"""

from __future__ import annotations

import html
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import yaml

from polysweep.analysis.data.frames import RunSet, frame, to_arrow
from polysweep.analysis.data.pulling import pull, store_of
from polysweep.child_command import run_command
from polysweep.sweeps.commands.plan import PlannedLaunch, plan_launch
from polysweep.sweeps.planning.estimate import Estimate
from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.spec.yaml_lines import SpecError
from polysweep.sweeps.store.states import FINAL, State
from polysweep.sweeps.store.store import Store
from polysweep.trainer.components.registry import import_paths
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import brief

Spec = str | os.PathLike[str] | Mapping[str, Any] | SweepSpec
"""A spec file, what such a file says as a dict, or a spec that was read before."""
MOST_CELLS: Final = 60  # rows of a table in a notebook


class SweepPlan:
    """What a launch of a sweep would do.

    `counts` has the trials in all and by state, `cells` a row per cell, `trials` a row per trial, `stacks` the ids of
    the trials that would be trained together, `estimate` the time and cost, `warnings` what is probably not intended,
    and `changes` the values in which the spec differs from the one launched under its name (see `launch(extend=True)`).
    """

    def __init__(self, planned: PlannedLaunch) -> None:
        self._plan = planned.plan
        self.name: str = planned.plan.spec.name
        self.counts: dict[str, int] = planned.plan.counts()
        self.estimate: Estimate = planned.estimate
        self.warnings: tuple[str, ...] = planned.warnings
        self.changes: tuple[str, ...] = planned.extension.changed

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The fields that tell the cells apart, and the number of trials in all, new, interrupted, running, ended."""
        rows = []
        for members in self._plan.members:
            states = [self._plan.state(trial) for trial in members]
            counts = {state.value: states.count(state) for state in (State.NEW, State.INTERRUPTED, State.RUNNING)}
            ended = sum(states.count(state) for state in FINAL)
            rows.append({**members[0].cell, "trials": len(states), **counts, "ended": ended})
        return _frame(rows)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """`trial_id`, `state` and every field of the config."""
        return _frame([{"trial_id": t.trial_id, "state": self._plan.state(t), **t.values} for t in self._plan.trials])

    @cached_property
    def stacks(self) -> list[list[str]]:
        """By stack the ids of its trials."""
        return [[trial.trial_id for trial in stack.trials] for stack in self._plan.stacks]

    def __repr__(self) -> str:
        states = [f"{count} {state}" for state, count in self.counts.items() if count and state != "trials"]
        left = self._plan.proposals_left
        parts = [
            f"{self.counts['trials']} trials in {len(self._plan.members)} cells ({', '.join(states) or 'none yet'})",
            f"{len(self._plan.stacks)} stacks would start" + (f", {left} points are to be proposed" if left else ""),
            f"time and cost: {self.estimate}",
        ]
        lines = [f"SweepPlan of {self.name}: {'; '.join(parts)}"]
        lines += [f"launch needs extend=True: {change}" for change in self.changes]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        lines = html.escape(repr(self)).replace("\n", "<br>")
        return f"<p>{lines}</p>{self.cells.to_html(index=False, max_rows=MOST_CELLS, na_rep='')}"


@dataclass(frozen=True, repr=False)
class TrainedTrial:
    """A trial that `train` has run: what the Store records of it, and a frame with a row per epoch."""

    trial_id: str
    record: Mapping[str, Any]
    history: pd.DataFrame

    def __repr__(self) -> str:
        return f"TrainedTrial {self.trial_id}: {self.record['outcome']} after {self.record['epoch']} epochs"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.history.to_html(index=False, max_rows=MOST_CELLS, na_rep='')}"


def plan(
    spec: Spec, *, store: Store | str | os.PathLike[str] | None = None, data_dir: str | os.PathLike[str] | None = None
) -> SweepPlan:
    """What `launch(spec)` would do, as `polysweep plan`; starts and writes nothing.

    Args:
        spec: a spec file, its content as a dict, or a `SweepSpec`.
        store: the Store, by default `POLYSWEEP_STORE` or `./polysweep-store`.
        data_dir: the folder of the data sets, by default `POLYSWEEP_DATA`, else the spec's, else `./polysweep-data`.

    Raises `UserError` with the command's message.
    """
    folder = os.environ.get("POLYSWEEP_DATA") if data_dir is None else os.fspath(data_dir)
    with _own_parts():
        return SweepPlan(plan_launch(_spec(spec), store_of(store), folder))


def launch(
    spec: Spec,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    wandb: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    address: str | None = None,
    insecure: bool = False,
    extend: bool = False,
    retry_failed: bool = False,
    wandb_sweep: bool = False,
    verbose: bool = False,
) -> RunSet:
    """Run every trial of a sweep that has not ended, as `polysweep launch`, and return the sweep's runs.

    Ctrl-C (in a notebook: interrupt) ends the launch in order within 10 s; the same call resumes it.

    Args:
        spec, store, data_dir: as of `plan`.
        wandb: `online`, `offline` or `disabled`; by default online if W&B is logged in, else offline.
        address, insecure: a Ray cluster, `auto` or `ray://HOST:10001`, and whether it may be one without a token.
        extend: whether to accept a spec that differs from the one launched under this name.
        retry_failed: whether to run the failed trials again.
        wandb_sweep: whether to register it as a W&B Sweep.
        verbose: whether to show what Ray and W&B print.

    Raises `UserError` with the command's message, `KeyboardInterrupt` after Ctrl-C. Trials that fail raise nothing:
    `runs["outcome"]` has them.
    """
    target = store_of(store)
    with _own_parts():
        sweep = _spec(spec)
    flags = {
        "--insecure": insecure, "--extend": extend, "--retry-failed": retry_failed,
        "--wandb-sweep": wandb_sweep, "--verbose": verbose,
    }  # fmt: skip
    options = _options({"--store": target.root, "--wandb": wandb, "--data-dir": data_dir, "--address": address})
    with tempfile.TemporaryDirectory(prefix="polysweep-spec-") as folder:
        path = Path(folder) / f"{sweep.name}.yaml"
        path.write_text(sweep.text, encoding="utf-8")
        run_command("launch", str(path), *options, *(flag for flag, is_set in flags.items() if is_set))
    return pull(sweep.name, store=target)


def train(
    *,
    store: Store | str | os.PathLike[str] | None = None,
    wandb: str | None = None,
    threads: int = 1,
    device: str = "cpu",
    data_dir: str | os.PathLike[str] | None = None,
    **config: Any,
) -> TrainedTrial:
    """Train one trial, as `polysweep train`: `train(task="digits", model="mlp", rho=0.1, ...)`.

    A trial that the Store already has is not trained again. Ctrl-C is answered as by `launch`.

    Args:
        store, wandb, data_dir: as of `launch`.
        threads: torch threads.
        device: `cpu` or `cuda`.
        config: fields of the trial's config; `model_options={"hidden": 32}` gives options.

    Raises `UserError` with the command's message, `KeyboardInterrupt` after Ctrl-C. A trial that fails raises nothing:
    `record["outcome"]` and `record["error"]` have it.
    """
    if threads < 1:
        raise UserError(f"--threads: {threads}; expected a number >= 1")
    target = store_of(store)
    with _own_parts():
        trial = TrialConfig.parse(_plain(config))
    settings = [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in trial.flat().items()]
    options = {"--store": target.root, "--wandb": wandb, "--data-dir": data_dir}
    run_command("train", *_options({**options, "--threads": threads, "--device": device}), "--", *settings)
    (history,) = (table for _, table in target.histories([trial.trial_id]))
    if isinstance(history, Exception):
        raise history
    return TrainedTrial(trial.trial_id, target.record(trial.trial_id) or {}, frame(history))


def _spec(spec: Spec) -> SweepSpec:
    """The spec in any of its forms. Raises `UserError` for what is none."""
    if isinstance(spec, SweepSpec):
        if not spec.text:
            raise UserError("spec: a SweepSpec is made by SweepSpec.load or SweepSpec.parse; or give a dict")
        return spec
    if isinstance(spec, str | os.PathLike):
        return SweepSpec.load(Path(spec))
    if not isinstance(spec, Mapping):
        raise UserError(f"spec: expected a path, a dict or a SweepSpec, not {brief(spec)}")
    if "name" not in spec:
        raise UserError("spec: 'name' is missing; only a file has another name to go by")
    try:
        text = yaml.safe_dump(_plain(spec), sort_keys=False, allow_unicode=True)
        return SweepSpec.parse(text, "spec")
    except yaml.representer.RepresenterError as error:
        raise UserError(f"spec: expected words, numbers, lists and dicts, not {brief(error.args[-1])}") from None
    except SpecError as error:
        message = re.sub(r"^spec:\d+: ", "spec: ", str(error), flags=re.MULTILINE)  # a dict has no lines
        raise type(error)(message) from None


def _plain(value: Any) -> Any:
    """Python's own numbers, lists and dicts for those of NumPy, for tuples and ranges, and for paths."""
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        value = value.tolist()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _options(options: Mapping[str, object]) -> list[str]:
    """`--name=value` for each option that is given."""
    return [f"{name}={_plain(value)}" for name, value in options.items() if value is not None]


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Rows as a frame of Arrow types, as those of a `RunSet`: what a row has no value for is <NA>."""
    names = dict.fromkeys(name for row in rows for name in row)
    return frame(pa.table({name: to_arrow([row.get(name) for row in rows]) for name in names}))


@contextmanager
def _own_parts() -> Iterator[None]:
    """In here own parts are found in the working directory, as by the commands; `sys.path` is restored after it."""
    before = list(sys.path)
    sys.path += import_paths()
    try:
        yield
    finally:
        sys.path[:] = before
