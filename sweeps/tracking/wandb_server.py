"""What the W&B server has of a sweep's trials, by the client's public Api: in bulk, and fresh at every call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from polysweep.sweeps.store.states import State
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import first_line
from polysweep.trainer.wandb_client import end_in_time_at_exit, prepare_environment, target_project

TIMEOUT_SECONDS: Final = 15
BATCH: Final = 500
NO_PROJECT: Final = "Could not find project"
"""How the client's error begins if the project does not exist; the server creates it with the first run."""


@dataclass(frozen=True)
class ServerRun:
    """A run as the server has it: the number of its history rows, and the last one's step."""

    rows: int
    last_step: int
    state: str  # running, finished, failed, crashed, killed, preempting, preempted
    tags: frozenset[str]
    outcome: str | None

    @property
    def has_hole(self) -> bool:
        """Whether rows are missing between others. The client only ever appends, so it cannot fill them."""
        return self.rows < self.last_step

    @property
    def has_repeats(self) -> bool:
        """Whether rows are there more than once, which the client cannot take back."""
        return 0 < self.last_step < self.rows

    def lacks(self, epochs: int, outcome: str, tags: Iterable[str]) -> str:
        """What is missing of a trial, in a word: rows, end or tags; empty if nothing is.

        `outcome` is `running` for a trial that is to go on.
        """
        if self.rows < epochs:
            return "rows"
        if outcome == State.RUNNING:
            if self.state in ("finished", "failed"):  # of an earlier attempt
                return "end"
        elif self.state != ("failed" if outcome == State.FAILED else "finished") or self.outcome != outcome:
            return "end"
        return "" if self.tags.issuperset(tags) else "tags"


def open_api(seconds: int, entity: str | None, place: str = "") -> tuple[Any, str]:
    """The client's Api, each of whose requests takes `seconds` at most, and `entity` or else the key's default one.

    Raises `UserError`, its message starting with `place`, if the server cannot be reached or does not accept the key.
    """
    prepare_environment()
    import wandb

    try:
        api: Any = wandb.Api(timeout=seconds)
        return api, entity or str(api.default_entity)
    except Exception as error:
        raise UserError(f"{place}the W&B server cannot be used: {first_line(error)}") from None
    finally:
        end_in_time_at_exit()


def require_runs(api: Any, project: str, tag: str | None, place: str) -> None:
    """Raise `UserError`, its message starting with `place`, if a project has no run (with the tag, if one is given).

    `project` is `ENTITY/PROJECT`.
    """
    try:
        count = len(api.runs(project, filters={"tags": tag} if tag else {}, per_page=1))
    except Exception as error:
        if str(error).startswith(NO_PROJECT):
            raise UserError(f"{place}{project}: Project `{project}` not found") from None
        raise UserError(f"{place}the W&B server does not list the runs of {project}: {first_line(error)}") from None
    if not count:
        missing = (
            f"no run has the tag {tag!r}; polysweep sync {tag} uploads those of a Store" if tag else "no run is there"
        )
        raise UserError(f"{place}{project}: {missing}")


class Server:
    """The project that runs are logged to: WANDB_ENTITY and WANDB_PROJECT, else the default entity and `polysweep`."""

    def __init__(self) -> None:
        """Raises `UserError` if the server cannot be reached, or does not accept the key."""
        entity, project = target_project()
        self._api, entity = open_api(TIMEOUT_SECONDS, entity)
        self.project = f"{entity}/{project}"

    def runs(self, trial_ids: Sequence[str]) -> dict[str, ServerRun]:
        """By trial id, those that exist. A project that does not exist yet has none.

        Raises `UserError` for every other answer: it does not mean that the server has no runs.
        """
        run_by_id: dict[str, ServerRun] = {}
        self._api.flush()  # it caches earlier answers
        for start in range(0, len(trial_ids), BATCH):
            asked = trial_ids[start : start + BATCH]
            filters = {"name": {"$in": list(asked)}}
            try:
                runs = list(self._api.runs(self.project, filters=filters, per_page=BATCH, lazy=False))
                run_by_id |= {run.id: _run(run) for run in runs}
            except Exception as error:
                if isinstance(error, ValueError) and str(error).startswith(NO_PROJECT):
                    return run_by_id
                what = f"the W&B server does not list the runs of {self.project}"
                raise UserError(f"{what}: {first_line(error)}") from None
        return run_by_id

    def add_tags(self, tags: Mapping[str, Iterable[str]]) -> None:
        """Add tags to runs that exist. Raises `UserError` with the first run that gets none."""
        for trial_id, added in tags.items():
            try:
                run = self._api.run(f"{self.project}/{trial_id}")
                run.tags = sorted({*run.tags, *added})
                run.update()
            except Exception as error:
                what = f"the W&B run {self.project}/{trial_id} cannot be tagged"
                raise UserError(f"{what}: {first_line(error)}") from None


def _run(run: Any) -> ServerRun:
    rows = int(run.historyLineCount or 0)
    last = (run.history_keys or {}).get("lastStep", -1)
    return ServerRun(rows, int(last), run.state, frozenset(run.tags), run.summary_metrics.get("outcome"))
