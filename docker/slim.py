"""Make an environment smaller and its modules quick to load: `python slim.py`, the last step of installing a lock.

What nothing in an image can use is removed, the symbols that only debuggers read are cut off, and the modules that
polysweep and Ray load are compiled. The same environment gives the same files.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

UNUSED = {
    "the packages' own tests": ["**/tests", "torch/test", "torch/bin/test_*"],
    "headers, sources and tools for a compiler, which the image has not": [
        "torch/include", "torch/share", "torch/bin/protoc*", "pyarrow/include", "pyarrow/src", "numpy/_core/include",
        "**/*.a", "nvidia/**/include",
    ],
    "Ray for Java, its reinforcement learning, and what a browser's debugger reads of its dashboard": [
        "ray/jars", "ray/rllib", "ray/dashboard/client/**/*.map",
    ],
    "Arrow's RPC servers": ["pyarrow/libarrow_flight.so*", "pyarrow/_flight*"],
}  # fmt: skip
KEPT_WHOLE = "nvidia"  # NVIDIA's libraries have no such symbols
LOADED = [  # what polysweep's commands and Ray's processes import
    *("ray.scripts.scripts", "ray._private.workers.default_worker", "ray._private.log_monitor"),
    *("ray.dashboard.dashboard", "ray.dashboard.agent", "ray._private.runtime_env.agent.main"),
    *("ray.autoscaler._private.monitor", "ray.job_submission", "ray.tune", "ray.tune.search.optuna"),
    *("torch.func", "scipy.optimize", "scipy.stats", "sklearn.datasets"),
    *("pyarrow.dataset", "pyarrow.fs", "pyarrow.json", "pyarrow.parquet", "s3fs"),
    *("wandb", "wandb_workspaces.reports.v2", "wandb_workspaces.workspaces"),
    *("seaborn", *(f"matplotlib.backends.backend_{kind}" for kind in ("agg", "pdf", "svg"))),
    *("grpc.aio", "jinja2", "pip", "pydantic.type_adapter", "rich.progress", "typer.main", "yaml"),
]


def remove_unused(site: Path) -> None:
    """Delete what `UNUSED` names."""
    for pattern in (pattern for patterns in UNUSED.values() for pattern in patterns):
        for path in sorted(site.glob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def cut_symbols(path: Path) -> None:
    """Shorten a 64-bit ELF file to the segments that the loader reads; any other file is left as it is.

    Behind them are names of functions and lines, and the table of sections, which no loader reads either.
    """
    with path.open("r+b") as file:
        header = file.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            return
        table, entry, entries = *struct.unpack_from("<Q", header, 32), *struct.unpack_from("<HH", header, 54)
        file.seek(table)
        segments = [struct.unpack_from("<Q16xQ", file.read(entry), 8) for _ in range(entries)]
        file.truncate(max(table + entry * entries, *(offset + size for offset, size in segments)))
        for field, size in ((40, 8), (60, 4)):  # where the table of sections is; how many there are
            file.seek(field)
            file.write(bytes(size))


def loaded_files(site: Path) -> list[Path]:
    """The Python files that an interpreter of its own loads for `LOADED`."""
    code = (
        "import importlib, json, sys; [importlib.import_module(name) for name in sys.argv[1:]];"
        "print(json.dumps([getattr(module, '__file__', None) or '' for module in list(sys.modules.values())]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *LOADED], stdout=subprocess.PIPE, text=True, check=True)
    paths = {Path(path) for path in json.loads(done.stdout.splitlines()[-1])}
    return sorted(path for path in paths if path.suffix == ".py" and path.is_relative_to(site))


def compile_files(paths: list[Path]) -> None:
    """By hash and not by time, so that two builds give the same files.

    The root is read-only later: without this every process would compile what it imports.
    """
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("\n".join(map(str, paths)))
        file.flush()
        command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "-i", file.name]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, check=True)


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    remove_unused(site)
    for path in sorted(site.rglob("*")):
        if path.is_file() and not path.is_symlink() and KEPT_WHOLE not in path.parts:
            cut_symbols(path)
    compile_files(loaded_files(site))


if __name__ == "__main__":
    main()
