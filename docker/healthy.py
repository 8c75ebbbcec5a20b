#!/opt/venv/bin/python
"""`healthy` exits with 0 if the node of Ray in this container reports that it is healthy. No token is needed.

`healthy head` and `healthy worker` say which node that is. Without either it is the one that `ray start` runs here;
if none runs, the container runs one command, and counts as healthy while that runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

PATHS = {"head": "/api/gcs_healthz", "worker": "/api/local_raylet_healthz"}


def ray_start(processes: Path = Path("/proc")) -> list[str] | None:
    """The arguments of this container's `ray start`; None if none runs."""
    for path in processes.glob("[0-9]*/cmdline"):
        try:
            command = path.read_text(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        for place, argument in enumerate(command[:3]):  # behind an interpreter and its options
            if Path(argument).name == "ray" and command[place + 1 : place + 2] == ["start"]:
                return command[place + 2 :]
    return None


def node(arguments: Sequence[str], kind: str | None = None) -> tuple[str, str, int]:
    """Head or worker, and the address that tells how it is, by `kind` and the arguments of `ray start`."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--dashboard-host", default="127.0.0.1")
    parser.add_argument("--dashboard-port", type=int, default=8265)
    parser.add_argument("--dashboard-agent-listen-port", type=int, default=52365)
    options, _ = parser.parse_known_args(arguments)
    if kind == "head" or (kind is None and options.head):
        return "head", options.dashboard_host, options.dashboard_port
    return "worker", "127.0.0.1", options.dashboard_agent_listen_port


def check(kind: str, host: str, port: int) -> None:
    """Exit with a message if the node is not healthy. Not by urllib, which would ask a proxy of the environment."""
    connection = HTTPConnection(host, port, timeout=4)
    try:
        connection.request("GET", PATHS[kind])
        answer = connection.getresponse()
        text = answer.read().decode()
    except (OSError, HTTPException) as error:
        sys.exit(f"{kind}: {error}")
    if answer.status != 200:
        sys.exit(f"{kind}: {answer.status} {text}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", nargs="?", choices=PATHS)
    kind = parser.parse_args().kind
    arguments = ray_start()
    if arguments is not None or kind is not None:
        check(*node(arguments or [], kind))


if __name__ == "__main__":
    main()
