"""A Ray of the launch's own is started with a mark and ended at once."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_the_names_of_rays_that_are_not_public_are_there() -> None:
    """`local_ray` makes Ray kill what it would ask to end; without this method it would wait a second for each."""
    from ray._private import services

    assert issubclass(services.ConsolePopen, subprocess.Popen)
    assert "process.terminate()" in (Path(services.__file__).parent / "node.py").read_text()
