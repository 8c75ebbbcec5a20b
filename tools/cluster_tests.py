"""All tests that need a cluster, an engine for containers or Slurm, group by group, with the counts of what ran.

python tools/cluster_tests.py [GROUP...]     default: all groups; as root, on Debian, it first installs what is missing
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parent.parent
GROUPS: Final = {
    "nodes": ("tests/support/test_cluster_net.py", "tests/system/test_cluster.py"),
    "refusals": ("tests/sweeps/cluster",),
    "chaos": ("tests/system/test_chaos_at_scale.py::test_sweeps_on_a_cluster_survive_their_nodes",),
    "upgrade": ("tests/system/test_upgrade.py",),
    "slurm": ("tests/system/test_slurm.py",),
    "kubernetes": ("tests/system/test_kuberay.py",),
    "cloud": ("tests/system/test_ray_cluster.py",),
    "images": ("tests/system/test_docker*.py",),
    "compose": ("tests/system/test_compose.py",),
}
PACKAGES: Final = {
    "ip": "iproute2", "iptables": "iptables", "mmdebstrap": "mmdebstrap", "buildah": "buildah", "podman": "podman",
    "runc": "runc", "openssl": "openssl", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client",
    "/usr/lib/podman/netavark": "netavark", "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "/usr/libexec/podman/catatonit": "catatonit",
}  # fmt: skip
"""Debian's package by the program that the tests start."""
PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def lacking() -> list[str]:
    """The packages whose programs are not on this machine."""
    return sorted(package for program, package in PACKAGES.items() if shutil.which(program, path=PATH) is None)


def install(packages: list[str]) -> None:
    """Install them, or exit with one line that says what to install."""
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if os.geteuid() != 0:
        sys.exit(f"make test-cluster needs root{': ' * bool(packages)}{' '.join(command) * bool(packages)}")
    if packages:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for step in (["apt-get", "update", "--quiet"], command):
            if subprocess.run(step, env=environment, stdout=subprocess.DEVNULL, check=False).returncode:
                sys.exit(f"make test-cluster: {' '.join(step)} has failed")


def counts(report: Path) -> dict[str, int]:
    """How many tests of pytest's XML report passed, failed or were skipped."""
    if not report.exists():
        return {"passed": 0, "failed": 1, "skipped": 0}
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}


def selected(name: str) -> list[str]:
    """What pytest is to run of a group."""
    chosen = []
    for pattern in GROUPS[name]:
        files, colons, test = pattern.partition("::")
        chosen += [f"{path.relative_to(ROOT)}{colons}{test}" for path in sorted(ROOT.glob(files))]
    return chosen


def run(name: str, folder: Path) -> dict[str, int]:
    """The counts of one group; its output is shown as it runs."""
    report = folder / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "long or not long", f"--junit-xml={report}", *selected(name)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": PATH}, check=False)
    return counts(report)


def line(name: str, result: dict[str, int], seconds: float) -> str:
    numbers = ", ".join(f"{number} {what}" for what, number in result.items() if number or what != "skipped")
    return f"{name + ':':12} {numbers} in {seconds:.0f} s"


def main(names: list[str]) -> None:
    """Run the groups and exit with 1 if a test failed."""
    if wrong := sorted(set(names) - set(GROUPS)):
        sys.exit(f"make test-cluster: no group {', '.join(wrong)}; expected some of {', '.join(GROUPS)}")
    install(lacking())
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names or GROUPS:
            print(f"--- {name}", flush=True)
            started = time.monotonic()
            results[name] = run(name, Path(folder)), time.monotonic() - started
    for name, (result, seconds) in results.items():
        print(line(name, result, seconds))
    totals = [result for result, _ in results.values()]
    passed, failed, skipped = (sum(one[what] for one in totals) for what in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(int(failed > 0 or passed == 0))


if __name__ == "__main__":
    main(sys.argv[1:])
