"""Hundreds of kills and faults of all kinds at random instants: sweeps end as if nothing had happened.

POLYSWEEP_CHAOS=30 makes it about thirty of them instead of more than three hundred.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.chaos_evidence import Tally
from tests.support.chaos_on_nodes import Nodes
from tests.support.chaos_sweeps import Reference, serving, trial_parameters
from tests.support.cluster_net import Cluster, possible
from tests.support.disturbances import Chaos, small_file_system
from tests.support.fault_proxy import FaultProxy
from tests.support.results import histories

pytestmark = pytest.mark.long
Run = Callable[..., subprocess.CompletedProcess[str]]

ASKED = int(os.environ.get("POLYSWEEP_CHAOS", "320"))
LOCAL = {
    "worker KILL": 76, "worker TERM": 24, "worker suspended": 24, "client KILL": 10, "disk full": 20,
    "wandb 429": 16, "wandb 500": 16, "wandb hangs": 12, "wandb resets": 16,
}  # fmt: skip
LOCAL_ENDS = {
    "driver KILL": 10, "driver INT": 6, "driver TERM": 6, "group KILL": 6, "group INT": 4, "group TERM": 4,
    "ray raylet": 2, "ray gcs_server": 1, "ray dashboard_agent": 2, "ray runtime_env_agent": 1,
}  # fmt: skip
S3 = {"s3 503": 14, "s3 slow": 10, "s3 resets": 10, "s3 hangs": 6, "worker KILL": 6}
S3_ENDS = {"driver KILL": 3, "driver TERM": 2}
CLUSTER = {"node KILL": 8, "worker KILL": 6}
WHOLE = 320  # about the sum of all


def drawn(kinds: Mapping[str, int], source: random.Random) -> list[str]:
    """Each kind as often as it is there, scaled to what was asked for, in a random order."""
    found = [kind for kind, count in kinds.items() for _ in range(math.ceil(count * ASKED / WHOLE))]
    source.shuffle(found)
    return found


def lives(calm: Mapping[str, int], ends: Mapping[str, int], source: random.Random) -> list[tuple[list[str], bool]]:
    """The disturbances of each launch, which ends with the last of them; of those that end one, half strike early."""
    endings = drawn(ends, source)
    late = [[end] for end in endings[::2]]
    for event in drawn(calm, source):
        source.choice(late).insert(0, event)
    early = [([end], True) for end in endings[1::2]]
    found = [*((events, False) for events in late), *early]
    source.shuffle(found)
    return found


@pytest.fixture(scope="module")
def whole(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """All disturbances of this file; their table is printed at the end."""
    tally, started = Tally(), time.monotonic()
    yield tally
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(tally.table(f"chaos at scale, {time.monotonic() - started:.0f} s in all"))


@pytest.fixture
def tally(whole: Tally, request: pytest.FixtureRequest) -> Iterator[Tally]:
    """The disturbances of one test, whose problems fail it."""
    own, started = Tally(), time.monotonic()
    yield own
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(own.table(f"{request.node.name}, {time.monotonic() - started:.0f} s"))
    whole.counts += own.counts
    for kind, seconds in own.seconds.items():
        whole.seconds[kind] += seconds
    whole.missed += own.missed
    whole.problems += own.problems
    if own.problems:
        pytest.fail(own.report(), pytrace=False)


@pytest.fixture
def spec(spec_file: Callable[..., Path]) -> Path:
    """The same trials in every test of this file."""
    return spec_file(**trial_parameters())


_references: list[Reference] = []


@pytest.fixture
def reference(run: Run, spec: Path, tmp_path: Path) -> Reference:
    """The sweep undisturbed, once for all tests."""
    if not _references:
        store = tmp_path / "undisturbed"
        answer = run("launch", spec, "--store", store, "--wandb", "disabled", timeout=600)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        _references.append(Reference(histories(store), run("table", spec.stem, "--store", store).stdout))
    return _references[0]


def test_sweeps_on_a_small_disk_survive_every_kill_and_a_failing_wandb_server(
    spec: Path, reference: Reference, tally: Tally, tmp_path: Path
) -> None:
    source = random.Random(2026)
    with (
        small_file_system(tmp_path / "disk", 48) as disk,
        Chaos(tmp_path, spec, reference, tally, 1, lambda number: str(disk / f"store{number}")) as chaos,
    ):
        for events, early in lives(LOCAL, LOCAL_ENDS, source):
            chaos.live(events, early)
        chaos.finish()


def test_sweeps_in_an_object_store_that_fails_end_as_on_local_files(
    spec: Path, reference: Reference, tally: Tally, tmp_path: Path, s3: str, s3_server: tuple[str, int]
) -> None:
    source = random.Random(7)
    with serving(tmp_path, "fault_proxy", "--upstream", s3_server[0]) as port:
        proxy = FaultProxy(port)
        with Chaos(
            tmp_path, spec, reference, tally, 2, lambda number: f"{s3}/store{number}", 2.0, proxy,
            {"AWS_ENDPOINT_URL": proxy.url},
        ) as chaos:  # fmt: skip
            for events, early in lives(S3, S3_ENDS, source):
                chaos.live(events, early)
            chaos.finish()


def test_a_launch_suspended_until_another_has_taken_over_writes_nothing_more(
    spec: Path, reference: Reference, tally: Tally, tmp_path: Path
) -> None:
    """For longer than a claim needs to go stale; then it wakes up, finds its trials ended, and ends in order."""
    stores = lambda number: str(tmp_path / f"store{number}")  # noqa: E731
    with Chaos(tmp_path, spec, reference, tally, 3, stores) as chaos:
        chaos.suspend_and_take_over()
        chaos.finish()


@pytest.mark.skipif(not possible(), reason="needs root and iproute2")
def test_sweeps_on_a_cluster_survive_their_nodes(
    spec: Path, reference: Reference, tally: Tally, tmp_path: Path
) -> None:
    quick_deaths = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "3"}
    source = random.Random(11)
    with (
        Cluster(tmp_path, token="a-token-of-the-test", environment=quick_deaths) as cluster,
        Nodes(tmp_path, spec, reference, tally, 4, lambda number: str(tmp_path / f"store{number}")) as nodes,
    ):
        nodes.cluster = cluster
        nodes.live(drawn(CLUSTER, source))
        nodes.finish()
