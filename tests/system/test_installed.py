"""The installed wheel: what is in it, and that nothing in a working directory stands in for a part of it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import own_network
from tests.support.project import ROOT, copy_of_the_project

SPEC = """
name: small
parameters: {task: {value: digits}, model: {value: mlp}, optimizer: {value: usam}, scheduler: {value: polyak},
  rho: {values: [0.1, 0.2]}, batch_size: {value: 720}, epochs: {value: 1}}
"""
NOTEBOOK = """
import polysweep
assert "site-packages" in polysweep.__file__, polysweep.__file__
planned = polysweep.plan("small.yaml", store="store")
runs = polysweep.pull("small", store="store")
chosen = polysweep.select(runs)
print(planned.counts["finished"], len(chosen.cells), polysweep.mean_std_table(chosen).shape)
"""
PACKED = """
from pathlib import Path
from polysweep.sweeps.cluster.submit import _travelling
from polysweep.sweeps.spec.spec import SweepSpec
with _travelling(SweepSpec.load(Path("small.yaml"))) as folder:
    print(sorted(path.name for path in folder.iterdir()))
    print(sorted(path.name for path in (folder / "polysweep").iterdir() if path.is_dir()))
"""
BROKEN = "raise RuntimeError('a module of the user was taken for one of polysweep')\n"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of an sdist of the project, as a package index would have it."""
    project = copy_of_the_project(tmp_path_factory.mktemp("project"))
    out = tmp_path_factory.mktemp("dist")
    build = "import sys; from setuptools import build_meta as b; print(b.build_sdist(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", build, out], cwd=project, check=True, capture_output=True)
    (sdist,) = out.glob("polysweep-*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", out, sdist], check=True, capture_output=True)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment in which the wheel is installed, with the dependencies of this one."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, wheel], check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def own_trainer(folder: Path) -> None:
    (folder / "trainer.py").write_text(BROKEN)


def own_analysis(folder: Path) -> None:
    (folder / "analysis").mkdir()
    (folder / "analysis" / "__init__.py").write_text(BROKEN)


def own_sweeps(folder: Path) -> None:
    (folder / "sweeps").mkdir(parents=True)
    (folder / "sweeps" / "__init__.py").write_text(BROKEN)


def own_yaml(folder: Path) -> None:
    (folder / "polysweep.yaml").write_text("name: [\n")


def wandbs_sweeps(folder: Path) -> None:
    """What `pip install 'wandb[sweeps]'` brings: an installed package `sweeps`."""
    own_sweeps(folder / "wandb-sweeps")


HOSTILE = {
    "trainer.py": own_trainer,
    "analysis": own_analysis,
    "sweeps": own_sweeps,
    "polysweep.yaml": own_yaml,
    "wandb[sweeps]": wandbs_sweeps,
    "PYTHONPATH=.": own_trainer,
}


@pytest.mark.parametrize(
    "kinds", [tuple(HOSTILE), *(pytest.param((kind,), marks=pytest.mark.long) for kind in HOSTILE)]
)
def test_a_working_directory_takes_the_place_of_nothing(
    kinds: tuple[str, ...], installed: Path, tmp_path: Path
) -> None:
    """All six in one directory; in the long tests each alone."""
    for kind in kinds:
        HOSTILE[kind](tmp_path)
    (tmp_path / "small.yaml").write_text(SPEC)
    paths = {"wandb[sweeps]": str(tmp_path / "wandb-sweeps"), "PYTHONPATH=.": "."}
    path = os.pathsep.join(paths[kind] for kind in kinds if kind in paths)
    environment = {**os.environ, "PYTHONPATH": path, "RAY_AUTH_MODE": "token", "WANDB_MODE": "offline"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            list(map(str, command)), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
            preexec_fn=own_network, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    polysweep, python = installed / "polysweep", installed / "python"
    assert "2 new" in run(polysweep, "plan", "small.yaml", "--store", "store")
    run(polysweep, "launch", "small.yaml", "--store", "store")
    assert "0.1" in run(polysweep, "table", "small", "--store", "store")
    (tmp_path / "notebook.py").write_text(NOTEBOOK)  # run as a file: its folder is the first place to import from
    assert run(python, "notebook.py").startswith("2 2 ")
    (tmp_path / "packed.py").write_text(PACKED)
    assert run(python, "packed.py").splitlines() == [
        "['polysweep', 'small.yaml']", "['analysis', 'sweeps', 'trainer']"
    ]  # fmt: skip


def test_the_wheel_holds_one_name_and_every_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"polysweep"}
    listed = subprocess.run(
        ["git", "ls-files", "trainer", "sweeps", "analysis"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {f"polysweep/{name}" for name in listed} <= names
    assert {"polysweep/py.typed", "polysweep/cli.py", "polysweep/sweeps/specs/quickstart.yaml"} <= names


STATE = """
import json, logging, os, signal, sys, warnings
def state():
    import matplotlib
    return [
        sorted((key, str(value)) for key, value in matplotlib.rcParams.items() if key != "backend"),
        str(dict.__getitem__(matplotlib.rcParams, "backend")),
        repr(logging.root.handlers), logging.root.level, logging.raiseExceptions, repr(logging.lastResort.formatter),
        repr(warnings.filters), sys.path, sys.excepthook.__module__, sorted(os.environ.items()),
        [repr(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)],
        signal.set_wakeup_fd(-1),
    ]
import matplotlib, pandas, pyarrow, pydantic, scipy.stats, seaborn, torch, wandb  # what they change is theirs
before = state()
import polysweep
for name in polysweep.__all__:
    getattr(polysweep, name)
after = state()
print([(a, b) for a, b in zip(before, after) if a != b])
"""


def test_importing_every_public_name_changes_no_global_state() -> None:
    done = subprocess.run([sys.executable, "-c", STATE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_importing_polysweep_loads_nothing_heavy() -> None:
    code = "import sys, polysweep; dir(polysweep); print([m for m in ('torch', 'ray', 'wandb', 'pandas', 'numpy', "
    code += "'matplotlib', 'pydantic') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_public_names_are_the_same_for_readers_and_for_python() -> None:
    """What mypy and an editor see, in the block TYPE_CHECKING, is what the names are imported from."""
    import ast

    import polysweep

    tree = ast.parse((ROOT / "polysweep" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        (alias.asname, f"{node.module}:{alias.name}")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lazy = {(name, f"polysweep.{module}:{name}") for name, module in polysweep._MODULE_OF.items()}
    assert {(name, target) for name, target in seen if name} == lazy
    assert sorted(polysweep.__all__) == polysweep.__all__ == sorted(name for name, _ in lazy)
    with pytest.raises(AttributeError, match="module 'polysweep' has no attribute 'no_such'"):
        _ = polysweep.no_such


@pytest.mark.parametrize("name", ["trainer.registry", "sweeps.spec", "analysis.pull"])
def test_own_parts_of_before_are_told_the_new_name(
    name: str, run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(f"import {name}\nclass Rule: ...\n")
    done = run("train", "task=digits", "model=mlp", "optimizer=sgd", "scheduler=mine:Rule")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert f"mine imports '{name.partition('.')[0]}" in done.stderr and "from polysweep import" in done.stderr
