"""Disturbances of a sweep on a cluster of three nodes: nodes die and others join, workers die on them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, ClassVar

from tests.support.chaos_sweeps import WORKER
from tests.support.cluster_net import Cluster
from tests.support.disturbances import Chaos
from tests.support.processes import command_of, descendants


class Nodes(Chaos):
    """As `Chaos`, launched from the laptop of `cluster`, and without W&B: no server is in its network."""

    cluster: Cluster
    mode: ClassVar[str] = "disabled"

    def start(self, command: list[str], output: Path, environment: dict[str, str]) -> subprocess.Popen[Any]:
        """On the laptop, through the client port."""
        into = ["sh", "-c", 'exec "$@" > "$0" 2>&1', str(output)]
        return self.cluster.start(*into, *command, "--address", self.cluster.client_address, environment=environment)

    def workers(self) -> list[int]:
        """Those of all nodes."""
        nodes = [pid for node in self.cluster.started if node.poll() is None for pid in descendants(node.pid)]
        return sorted(pid for pid in nodes if WORKER in command_of(pid))

    def _node(self, _how: str) -> bool:
        """Sudden death of a node that is not the head, also in the middle of a write; another node joins."""
        alive = [number for number, node in enumerate(self.cluster.started) if number and node.poll() is None]
        count = self.cluster.alive()
        self.cluster.kill_node(self.random.choice(alive))
        self.cluster.wait_alive(count - 1)
        self.cluster.add_node()
        return True
