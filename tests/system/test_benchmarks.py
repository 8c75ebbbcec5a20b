"""The benchmarks run, with tiny sizes; that of a GPU also where there is none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.project import ROOT


@pytest.mark.long
def test_the_check_of_a_gpu_runs_on_a_cpu_in_small() -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu_check.py", "--device", "cpu"],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout + answer.stderr
    for what in ("graph = eager", "again = first", "resumed = uninterrupted"):
        assert answer.stdout.count(f"{what}: the same bits") == 2
    assert "4 of 4 trials finished in 2 workers" in answer.stdout
    for part in ("(a) sam-sps", "(b) eager", "(c) captured", "(d)", "float32", "bfloat16", "roofline float32:"):
        assert part in answer.stdout


def test_the_check_of_a_gpu_says_where_there_is_none() -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu_check.py"], env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "gpu-check: torch finds no GPU here; `--device cpu` runs all of it in small\n"


@pytest.mark.long
def test_the_benchmark_of_calibration_finds_a_stack_for_small_images() -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "calibration.py", "--cases", "2"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    rows = [[text.strip() for text in line.split("│")[1:-1]] for line in answer.stdout.splitlines() if "│" in line]
    assert [row[0] for row in rows] == ["resnet8", "mlp"]
    assert all(int(row[5]) > 1 for row in rows), "many small steps are faster together"


@pytest.mark.long
def test_the_benchmark_of_the_data_runs() -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "data.py", "--rounds", "1", "--batches", "2"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "DataLoader" in answer.stdout and "polysweep" in answer.stdout


@pytest.mark.long
def test_the_benchmark_of_an_epoch_runs_and_its_variants_have_the_same_losses() -> None:
    """In float32 to rounding, step by step from equal states; the pixels are compared to the bit inside."""
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "epoch.py", "--rounds", "1", "--images", "256"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    last = answer.stdout.strip().splitlines()[-1]
    assert float(last.rpartition("at most ")[2].split()[0]) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("trials", [50, 1000])
def test_the_benchmark_of_the_analysis_runs_and_the_loop_and_the_pull_agree(trials: int) -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "analysis.py", "--trials", str(trials), "--runs", "12", "--rounds", "1"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "no cache" in answer.stdout and "loop / cold: median" in answer.stdout


@pytest.mark.long
def test_the_benchmark_of_the_store_counts_a_save_and_a_heartbeat() -> None:
    """More rows cost no less; what they cost is the benchmark's to say."""
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "store.py", "--widths", "1", "4", "--rounds", "1"],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in answer.stdout.splitlines() if "│" in line]
    assert [row[:2] for row in rows] == [[k, what] for k in ("1", "4") for what in ("start", "save", "heartbeat")] * 2
    calls = [sum(float(count) for count in row[2:-1]) for row in rows]
    assert all(calls)
    assert all(
        more >= less
        for first in (0, 6)
        for less, more in zip(calls[first : first + 3], calls[first + 3 : first + 6], strict=True)
    )


@pytest.mark.long
def test_the_benchmark_of_a_thousand_workers_runs_in_small_and_names_the_first_limit() -> None:
    """On both kinds of Store; what is sustained is the benchmark's to say, and that workers start side by side."""
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "scale.py", "--workers", "2", "4", "--trials", "400",
         "--seconds", "0.6"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    for workers in (2, 4):
        assert f"first limit at {workers} workers: " in answer.stdout
        assert f"Tune: {workers} start at one time" in answer.stdout
    for line in (
        "reports",
        "local: saved rows",
        "s3: saved rows",
        "s3: PUTs",
        "s3: status --watch",
        "offline W&B runs",
    ):
        assert answer.stdout.count(f"│ {line}") == 2, line
    assert "plan of 400 trials, 50 stacks" in answer.stdout and "the moto server itself used" in answer.stdout


@pytest.mark.long
def test_the_benchmark_of_the_sam_family_runs_and_agrees_with_its_twin() -> None:
    answer = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "sam_family.py", "--steps", "5"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    rows = [[text.strip() for text in line.split("│")[1:-1]] for line in answer.stdout.splitlines() if "│" in line]
    twin = [row for row in rows if len(row) == 4]
    assert len(twin) == 46
    assert all(float(row[2]) < 1e-12 and float(row[3]) < 1e-4 for row in twin)
