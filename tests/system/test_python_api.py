"""polysweep from Python: the page's script, its names, and errors as the commands say them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import polysweep
from tests.support.lab import READING
from tests.support.pages import blocks_of
from tests.support.processes import as_from_a_terminal, own_network
from tests.support.project import ROOT, TINY
from tests.support.waiting import wait_for

PAGE = ROOT / "docs" / "python.md"


def test_the_pages_script_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "notebook.py").write_text("\n".join(blocks_of(PAGE, "python")))
    done = subprocess.run(
        [sys.executable, "notebook.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600,
        preexec_fn=own_network, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    out = done.stdout
    assert out.startswith("SweepPlan of first: 12 trials in 4 cells (12 new); ")
    assert "12 finished" in out
    assert re.search(r"TrainedTrial [0-9a-f]{16}: finished after 2 epochs \[0\.\d+, 0\.\d+\]", out)
    assert re.search(r"std +n +seeds", out), "a selection shows its cells with their n"
    assert (tmp_path / "robustness.png").stat().st_size > 1000
    assert len(out.splitlines()) < 60, "objects print themselves, not their frames"


SCRIPT = """
import polysweep

values = {"task": "beside:table", "model": "mlp", "optimizer": "sgd", "scheduler": "constant", "lr": 0.1,
          "batch_size": 4, "epochs": 1}
spec = {"name": "own", "parameters": {name: {"value": value} for name, value in values.items()}}
print(polysweep.plan(spec, store="store"))
print(polysweep.launch(spec, store="store", wandb="disabled"))
"""


def test_workers_have_the_working_directory_and_the_import_paths_of_the_script_that_launches(tmp_path: Path) -> None:
    """A task of a module beside the script reads a file by a path relative to where the script is run."""
    for name, text in (
        ("code/beside.py", READING),
        ("code/script.py", SCRIPT),
        ("data/table.csv", "".join(f"{n},{2 * n},{3 * n},{4 * n},{n % 2}\n" for n in range(8))),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "code/script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600,
        preexec_fn=own_network, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 finished" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"code", "data", "store", "polysweep-cache"}


def test_the_page_names_every_public_name() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## All names")[2]
    assert set(re.findall(r"`(\w+)`", table)) == set(polysweep.__all__)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (3, "spec: expected a path, a dict or a SweepSpec, not 3"),
        ({"parameters": {}}, "spec: 'name' is missing"),
        ("nowhere.yaml", "nowhere.yaml"),
        ({"name": "a", "parameters": {"tusk": {"value": "digits"}}}, "did you mean 'task'"),
        ({"name": "a", "parameters": {"task": {"value": object()}}}, "spec: expected words, numbers, lists and dicts"),
    ],
)
def test_a_spec_that_is_none_is_the_users_error(spec: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(polysweep.UserError, match=re.escape(message)):
        polysweep.plan(spec, store=tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_command_is_raised_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(polysweep.UserError, match="--device: 'tpu' is not on this machine"):
        polysweep.train(**TINY, store=tmp_path, wandb="disabled", device="tpu")
    with pytest.raises(polysweep.UserError, match="lr: missing"):
        polysweep.train(task="digits", model="mlp", optimizer="sgd", scheduler="constant", store=tmp_path)


def test_what_a_plan_returns_shows_its_counts_and_escapes_its_html(tmp_path: Path) -> None:
    spec = {"name": "a", "parameters": {name: {"value": value} for name, value in {**TINY, "rho": [0.1, 0.2]}.items()}}
    spec["parameters"]["rho"] = {"values": [0.1, 0.2]}  # type: ignore[index]
    planned = polysweep.plan(spec, store=tmp_path)
    assert planned.counts["trials"] == planned.counts["new"] == 2 and len(planned.cells) == len(planned.trials) == 2
    assert planned.cells["rho"].tolist() == [0.1, 0.2] and sum(map(len, planned.stacks)) == 2
    assert repr(planned).startswith("SweepPlan of a: 2 trials in 2 cells (2 new)")
    assert "<table" in planned._repr_html_() and "SweepPlan of a" in planned._repr_html_()


def test_an_interrupt_ends_a_training_in_order_and_leaves_the_caller_as_it_was(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys, polysweep
before = signal.getsignal(signal.SIGINT), dict(os.environ), list(sys.path)
try:
    polysweep.train(**{{**{TINY!r}, "epochs": 5000}}, store=sys.argv[1], wandb="disabled")
except KeyboardInterrupt:
    print("interrupted", before == (signal.getsignal(signal.SIGINT), dict(os.environ), list(sys.path)))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "store"], stdout=subprocess.PIPE, text=True,
        preexec_fn=partial(as_from_a_terminal, False),
    )  # fmt: skip
    wait_for(lambda: any((tmp_path / "store").glob("trials/*/history.parquet")), 120, process)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted True\n"
