"""To wait for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], seconds: float = 60.0, process: Any = None) -> Any:
    """Poll until the condition holds; fail loudly when it does not in time, or when `process` ends before."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode}: {process.stdout.read()}")
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {condition}")
