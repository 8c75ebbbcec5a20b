"""What the W&B server has of a sweep's trials, by the client's public Api: in bulk, and fresh at every call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainer.registry import UserError

TIMEOUT_SECONDS: Final = 15
BATCH: Final = 500


@dataclass(frozen=True)
class ServerRun:
    """A run as the server has it: the number of its history rows, and the last one's step."""

    rows: int
    last_step: int
    state: str  # running, finished, failed, crashed
    tags: frozenset[str]
    outcome: str | None

    @property
    def has_hole(self) -> bool:
        """Whether rows are missing between others. The client only ever appends, so it cannot fill them."""
        return self.rows < self.last_step

    def lacks(self, epochs: int, outcome: str, tags: Iterable[str]) -> str:
        """What is missing of a trial, in a word: rows, end or tags; empty where nothing is.

        `outcome` is `running` for a trial that is to go on.
        """
        if self.rows < epochs:
            return "rows"
        ended = "failed" if outcome == "failed" else "finished"
        if outcome != "running" and (self.state != ended or self.outcome != outcome):
            return "end"
        return "" if self.tags.issuperset(tags) else "tags"


class Server:
    """The project that runs are logged to: WANDB_ENTITY and WANDB_PROJECT, else the default entity and `polysweep`."""

    def __init__(self) -> None:
        """Raises `UserError` where the server cannot be reached, or does not take the key."""
        import wandb

        try:
            self._api: Any = wandb.Api(timeout=TIMEOUT_SECONDS)
            entity = os.environ.get("WANDB_ENTITY") or self._api.default_entity
        except Exception as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(f"the W&B server cannot be used: {first}") from None
        self._path = f"{entity}/{os.environ.get('WANDB_PROJECT') or 'polysweep'}"

    def runs(self, trial_ids: Sequence[str]) -> dict[str, ServerRun]:
        """By trial id, those that exist. A project that does not exist yet has none."""
        found: dict[str, ServerRun] = {}
        for start in range(0, len(trial_ids), BATCH):
            asked = trial_ids[start : start + BATCH]
            try:
                runs = list(
                    self._api.runs(self._path, filters={"name": {"$in": list(asked)}}, per_page=BATCH, lazy=False)
                )
            except ValueError:  # no such project
                return found
            except Exception as error:
                first = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise UserError(f"the W&B server does not say what it has of {self._path}: {first}") from None
            found |= {run.id: _run(run) for run in runs}
        return found

    def add_tags(self, tags: Mapping[str, Iterable[str]]) -> None:
        """Add tags to runs that exist."""
        for trial_id, added in tags.items():
            run = self._api.run(f"{self._path}/{trial_id}")
            run.tags = sorted({*run.tags, *added})
            run.update()


def _run(run: Any) -> ServerRun:
    rows = int(run.historyLineCount or 0)
    last = (run.history_keys or {}).get("lastStep", -1)
    return ServerRun(rows, int(last), run.state, frozenset(run.tags), run.summary_metrics.get("outcome"))
