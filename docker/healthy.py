#!/opt/venv/bin/python
"""`healthy head` and `healthy worker` exit with 0 where this node of Ray says that it is well. No token is needed."""

from __future__ import annotations

import sys
from http.client import HTTPConnection, HTTPException

ADDRESSES = {"head": (8265, "/api/gcs_healthz"), "worker": (52365, "/api/local_raylet_healthz")}


def main(kind: str) -> None:
    """Not through urllib, which would ask a proxy that the environment names."""
    port, path = ADDRESSES[kind]
    connection = HTTPConnection("127.0.0.1", port, timeout=4)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        said = answer.read().decode()
    except (OSError, HTTPException) as error:
        sys.exit(f"{kind}: {error}")
    if answer.status != 200:
        sys.exit(f"{kind}: {answer.status} {said}")


if __name__ == "__main__":
    main(*sys.argv[1:])
