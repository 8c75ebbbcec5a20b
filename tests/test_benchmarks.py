"""The benchmark of a GPU runs where there is none, with tiny sizes."""

from __future__ import annotations

import subprocess
import sys

from conftest import ROOT


def test_the_gpu_benchmark_runs_on_a_cpu_in_small() -> None:
    answer = subprocess.run(
        [
            sys.executable,
            ROOT / "benchmarks" / "gpu.py",
            "--device",
            "cpu",
            "--steps",
            "2",
            "--batch",
            "4",
            "--widths",
            "2",
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    for part in ("(a) sam-sps", "(b) eager", "(c) captured", "(d)", "float32", "bfloat16", "roofline float32:"):
        assert part in answer.stdout
    assert "stack: auto for bfloat16: {'cpu': {'resnet20 3x32x32': " in answer.stdout
