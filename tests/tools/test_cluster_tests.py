"""`make test-cluster`: what it needs, what it runs, what it counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.project import ROOT
from tools import cluster_tests

REPORT = '<testsuites><testsuite tests="9" failures="2" errors="1" skipped="1"/></testsuites>'


def test_every_group_has_tests_and_every_test_of_a_cluster_a_group() -> None:
    chosen = {name: cluster_tests.selected(name) for name in cluster_tests.GROUPS}
    assert all(chosen.values())
    grouped = {one.partition("::")[0] for every in chosen.values() for one in every}
    grouped |= {str(path.relative_to(ROOT)) for one in list(grouped) for path in (ROOT / one).glob("test_*.py")}
    needed = re.compile(r"import (Cluster|Slurm|Compose|built_image)\b")
    for path in ROOT.glob("tests/**/test_*.py"):
        name = str(path.relative_to(ROOT))
        assert name in grouped or not needed.search(path.read_text()), name


def test_what_is_missing_is_installed_by_root_and_named_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cluster_tests, "PATH", str(tmp_path))
    (tmp_path / "podman").touch(mode=0o755)
    packages = cluster_tests.lacking()
    assert {"slurmctld", "buildah"} <= set(packages) and "podman" not in packages
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match=r"^make test-cluster needs root: apt-get install .*slurmctld"):
        cluster_tests.install(packages)
    with pytest.raises(SystemExit, match=r"^make test-cluster needs root$"):
        cluster_tests.install([])


def test_a_group_is_one_line_of_counts(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    found = cluster_tests.counts(tmp_path / "report.xml")
    assert cluster_tests.line("slurm", found, 61.2) == "slurm:       5 passed, 3 failed, 1 skipped in 61 s"
    assert cluster_tests.counts(tmp_path / "none.xml")["failed"] == 1, "pytest itself has failed"
    with pytest.raises(SystemExit, match="no group slum; expected some of nodes, "):
        cluster_tests.main(["slum"])
