"""K is measured by the first launch of a signature on this kind of device, once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.results import records

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SpecFile = Callable[..., Path]
PARAMETERS = {
    "task": {"value": "digits"}, "model": {"value": "mlp"}, "optimizer": {"value": "usam"},
    "scheduler": {"value": "polyak"}, "batch_size": {"value": 256}, "epochs": {"value": 1},
}  # fmt: skip


@pytest.mark.long
def test_the_first_launch_measures_k_and_another_sweep_takes_it_from_the_store(
    run: Run, run_here: Run, spec_file: SpecFile, tmp_path: Path
) -> None:
    store, options = tmp_path / "store", ("--store", tmp_path / "store", "--wandb", "disabled")

    def spec(name: str, radius: float) -> Path:
        return spec_file(f"{name}.yaml", parameters={**PARAMETERS, "rho": {"value": radius}}, variants=[{}], tuned=[])

    first, second = spec("first", 0.1), spec("second", 0.2)
    assert "mlp on digits: K will be measured by the first worker" in run_here("plan", first, *options[:2]).stdout
    launched = run("launch", first, *options)
    assert launched.returncode == 0 and "first: mlp on digits: K = " in launched.stdout, launched.stdout
    (kept,) = store.glob("calibration/*/*.json")
    before, measured = kept.stat().st_mtime_ns, json.loads(kept.read_text())
    assert [one["width"] for one in measured["widths"]][:2] == [1, 2]

    assert "measured on " in run_here("plan", second, *options[:2]).stdout
    launched = run("launch", second, *options)
    assert launched.returncode == 0, launched.stdout + launched.stderr
    assert list(store.glob("calibration/*/*.json")) == [kept] and kept.stat().st_mtime_ns == before
    assert len({record["width"] for record in records(store).values()}) == 1 and len(records(store)) == 4
