"""How many cores a launch has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polysweep.trainer.cpus import usable_cpus


@pytest.mark.parametrize(
    ("lines", "quotas", "cores"),
    [
        (["0::/a/b"], {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "max 100000\n"}, 1),
        (["0::/a/b"], {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1),
        (["0::/host/path"], {"cpu.max": "50000 100000\n"}, 1),  # inside a container
        (["4:memory:/m", "1:cpu,cpuacct:/c"], {"cpu,cpuacct/c/cpu.cfs_quota_us": "100000\n",
                                               "cpu,cpuacct/c/cpu.cfs_period_us": "100000\n"}, 1),
        (["1:cpu:/c"], {"cpu/c/cpu.cfs_quota_us": "-1\n", "cpu/c/cpu.cfs_period_us": "100000\n"}, None),
        (["0::/"], {"cpu.max": "6400000 100000\n"}, None),
        (["0::/"], {"cpu.max": "nonsense\n"}, None),
        (["0::/"], {}, None),
    ],
)  # fmt: skip
def test_the_quota_of_a_control_group_limits_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str], quotas: dict[str, str], cores: int | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    (tmp_path / "cgroup").write_text("\n".join(lines) + "\n")
    for name, content in quotas.items():
        (tmp_path / "sys" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / name).write_text(content)
    assert usable_cpus(tmp_path / "cgroup", tmp_path / "sys") == (cores or 8)


def test_cores_are_known_where_there_is_neither_affinity_nor_a_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "process_cpu_count", lambda: 6, raising=False)
    assert usable_cpus(tmp_path / "none", tmp_path / "none") == 6
