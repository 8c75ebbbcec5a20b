"""The loopback W&B server as a test sees it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any


class Wandb:
    """The loopback W&B server of a test."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def dump(self) -> dict[str, Any]:
        """Everything that the server has."""
        with urllib.request.urlopen(f"{self.url}/dump", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def fail(self, status: int, **how: Any) -> None:
        """Answer requests with `status`; `how`: retry_after (s), every (n-th only), only (a kind), applied (bool)."""
        self._control(mode="fail", status=status, **how)

    def hang(self, **how: Any) -> None:
        """Never answer requests; `how` as for `fail`."""
        self._control(mode="hang", **how)

    def slow(self, seconds: float, **how: Any) -> None:
        """Look at requests as late as that, even when their client is gone by then; `how`: only."""
        self._control(delay=seconds, **how)

    def shuffle(self, seed: int) -> None:
        """List runs in another order at every request."""
        self._control(shuffle=seed)

    def load(self, project: str, runs: list[dict[str, Any]]) -> None:
        """Put runs of the entity `lab` there at once, as if clients had logged them."""
        body = json.dumps({"entity": "lab", "project": project, "runs": runs}).encode()
        with urllib.request.urlopen(f"{self.url}/load", body, timeout=60):
            pass

    def protect(self, *projects: str) -> None:
        """Let nobody write to projects, each as entity/project."""
        self._control(read_only=projects)

    def miscount(self, missing: int) -> None:
        """Count so many runs more than are listed."""
        self._control(missing=missing)

    def recover(self) -> None:
        """Answer again; requests that hang get a 503."""
        self._control()

    def _control(self, **fault: Any) -> None:
        with urllib.request.urlopen(f"{self.url}/control", json.dumps(fault).encode(), timeout=10):
            pass
