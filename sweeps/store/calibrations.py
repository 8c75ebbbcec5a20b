"""How fast stacks of a signature are on a kind of device, by K, as a worker has measured it once for all launches.

calibration/<device>/<signature>.json           the measurement
calibration/<device>/<signature>.measuring      the process that makes it
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from polysweep.sweeps.job import Calibration
from polysweep.sweeps.store.checking import CALIBRATION_FORMAT, checked_calibration, json_bytes, parse_json
from polysweep.sweeps.store.files import Files
from polysweep.sweeps.store.process import Process

PATIENCE_SECONDS: Final = 90.0
"""How long another process's measurement is waited for: longer than one takes."""
WAIT_SECONDS: Final = 0.5


class Calibrations:
    """The measurements in a Store."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def read(self, device: str, signature: str) -> Calibration | None:
        """The measurement; None if there is none. Raises `StoreError` if it is damaged or of a newer version."""
        path = _path(device, signature)
        content = self._files.read(path)
        if content is None:
            return None
        address = self._files.path(path)
        fields: dict[str, Any] = {**checked_calibration(parse_json(content, address), address)}
        del fields["format"]
        return Calibration(**fields)

    def measured(
        self,
        device: str,
        signature: str,
        measure: Callable[[], Calibration | None],
        stop: Callable[[], bool] = lambda: False,
    ) -> Calibration | None:
        """The measurement that is there, or that another process makes now, or else a new one.

        None if `measure` was interrupted, or `stop` said so while another's was waited for.
        """
        begun = _path(device, signature, "measuring")
        since, seen = time.monotonic(), b""
        while (kept := self.read(device, signature)) is None:
            claim = {"process": vars(Process.this()), "token": uuid.uuid4().hex}
            if self._files.create(begun, json.dumps(claim).encode()):
                try:  # another process may have kept one just before
                    return self.read(device, signature) or self._keep(measure())
                finally:
                    self._files.remove(begun)
            others = self._files.read(begun) or b""
            if others != seen:  # another process has begun
                since, seen = time.monotonic(), others
            if _is_given_up(others) or time.monotonic() - since > PATIENCE_SECONDS:
                self._files.remove(begun)
            elif stop():
                return None
            else:
                time.sleep(WAIT_SECONDS)
        return kept

    def _keep(self, calibration: Calibration | None) -> Calibration | None:
        """Store it; the one that is kept, if another process was faster."""
        if calibration is not None:
            path = _path(calibration.device, calibration.signature)
            if not self._files.create(path, json_bytes({"format": CALIBRATION_FORMAT, **asdict(calibration)})):
                return self.read(calibration.device, calibration.signature)
        return calibration


def _is_given_up(begun: bytes) -> bool:
    """Whether the process that measures is known to be gone."""
    try:
        return Process(**json.loads(begun)["process"]).is_dead()
    except (ValueError, TypeError, KeyError):  # it ends just now
        return False


def _path(device: str, signature: str, ending: str = "json") -> str:
    return f"calibration/{re.sub(r'[^A-Za-z0-9.]+', '-', device).strip('-')}/{signature}.{ending}"
