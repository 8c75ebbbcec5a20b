"""Measures K, and the share of a GPU, for a signature on this worker's device, unless the Store has it already."""

from __future__ import annotations

import time
from collections.abc import Callable

from polysweep.sweeps.job import Calibration, CalibrationJob
from polysweep.sweeps.store.store import Store
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.curve import best_share
from polysweep.trainer.device import kind_of_device


def calibrate(job: CalibrationJob, stop: Callable[[], bool] = lambda: False) -> Calibration | None:
    """The measurement of the job's signature on this device; None if `stop` said so.

    A measurement is made once for a kind of device: later launches, and those that run now, take it from the Store.
    """
    store = Store(job.store, job.patience)
    store.files.gives_up = stop
    kind = kind_of_device(job.device, job.threads)
    return store.calibrations.measured(kind, job.name, lambda: _measure(job, kind, stop), stop)


def _measure(job: CalibrationJob, kind: str, stop: Callable[[], bool]) -> Calibration | None:
    from polysweep.trainer.calibration import measure_shares, measure_widths

    began, started = time.time(), time.perf_counter()
    config = TrialConfig.parse(job.config, recorded=True)
    curve = measure_widths(config, device=job.device, data=job.data, threads=job.threads, fixed=job.width, stop=stop)
    if curve is None:
        return None
    rates = {}
    if job.is_shared:
        rates = measure_shares(config, curve, device=job.device, data=job.data, threads=job.threads)
    return Calibration(
        device=kind,
        signature=job.name,
        width=curve.best(1.0),
        share=best_share(rates) if rates else None,
        widths=[one._asdict() for one in curve.widths],
        shares={str(count): rate for count, rate in rates.items()},
        free=curve.free,
        seconds=time.perf_counter() - started,
        time=began,
    )
