"""`polysweep probe` on a Ray of its own, interrupted and continued."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from polysweep.sweeps.store.store import Store
from tests.support.waiting import wait_for

Run = Callable[..., subprocess.CompletedProcess[str]]
SPEC = {
    "name": "probed",
    "parameters": {
        "task": {"value": "digits"},
        "model": {"value": "mlp"},
        "optimizer": {"value": "usam"},
        "rho": {"values": [0.1, 0.2, 0.3]},
        "scheduler": {"value": "polyak"},
        "batch_size": {"value": 256},
        "epochs": {"value": 1},
    },
    "seeds": 4,
    "launch": {"stack": 2},
}


def test_a_probe_that_is_interrupted_keeps_what_it_has_measured_and_continues(
    launch_here: Run, run: Run, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    spec, store = tmp_path / "probed.yaml", tmp_path / "store"
    spec.write_text(json.dumps(SPEC))
    assert launch_here(spec, "--store", store).returncode == 0

    def measured() -> int:
        return len(list(store.glob("trials/*/probes/curvature-*.json")))

    asked = ("probe", "probed", "--store", store, "--images", "1400", "--vectors", "30")
    process = start(*asked)
    wait_for(lambda: measured() > 0 or process.poll() is not None, 300)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 128 + signal.SIGINT, process.stderr and process.stderr.read()
    kept = measured()
    assert 0 < kept < 12
    files = {path: path.stat().st_mtime_ns for path in store.glob("trials/*/probes/*.json")}
    rest = run(*asked)
    assert rest.returncode == 0 and f"{12 - kept} measurements to make, {kept} are there" in rest.stdout, rest.stderr
    assert measured() == 12 and all(path.stat().st_mtime_ns == at for path, at in files.items())
    assert "nothing to measure" in run(*asked).stdout

    broken = Store(str(store)).launched("probed").trials[0].trial_id
    (store / "trials" / broken / "checkpoint.pt").write_bytes(b"no checkpoint")
    (path,) = (store / "trials" / broken / "probes").iterdir()
    path.unlink()
    failed = run(*asked)
    assert failed.returncode == 1 and f"trial {broken} is not measured" in failed.stderr and "damaged" in failed.stderr
    assert "Traceback" not in failed.stderr and "0 of 1 measurements made" in failed.stdout
