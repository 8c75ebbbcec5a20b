"""docker/compose.yaml in containers: head and two workers, a sweep from outside, a worker killed, every trial once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compose import Compose, missing
from tests.support.docker import built_image, call, image_storage
from tests.support.project import POLYSWEEP
from tests.support.results import records
from tests.support.waiting import wait_for

Image = tuple[list[str], str]
ARCHIVE = "CPU_IMAGE_ARCHIVE"
PATIENCE = 600.0  # seconds, on a busy machine


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The options of podman, and an image that is built here, or that the archive named by `ARCHIVE` holds."""
    folder, archive = tmp_path_factory.mktemp("images"), os.environ.get(ARCHIVE)
    if archive is None:
        with built_image(folder) as built:
            yield built
        return
    with image_storage(folder) as storage:
        loaded = call("podman", *storage, "load", "--quiet", "--input", archive).stdout
        yield storage, re.findall(r"\S+:\S+", loaded)[-1]


def is_up(output: str) -> bool:
    """Whether the head was healthy; fails at once if podman cannot make its container."""
    assert "Error response from daemon: container create" not in output, output
    return "Healthy" in output


@pytest.mark.long
def test_a_submitted_sweep_survives_a_killed_worker_and_runs_every_trial_once(image: Image, tmp_path: Path) -> None:
    assert not missing(), f"this test needs {', '.join(missing())}: make test-cluster, as root, installs it"
    values = {
        "task": "digits",
        "model": "mlp",
        "optimizer": "usam",
        "scheduler": "polyak",
        "batch_size": 8,
        "epochs": 12,
    }
    parameters = {name: {"value": value} for name, value in values.items()} | {"rho": {"values": [0.1, 0.2, 0.3]}}
    launch = {"stack": 2, "checkpoint_seconds": 0}
    spec = tmp_path / "small.yaml"
    spec.write_text(json.dumps({"name": "small", "parameters": parameters, "seeds": 2, "launch": launch}))
    storage, name = image
    with Compose(tmp_path, storage, {"POLYSWEEP_IMAGE": name, "WORKERS": "2"}) as host:
        # On a busy machine Ray's 30 seconds for its start run out; the head, which is not healthy, is started again.
        wait_for(lambda: is_up(host.compose("up", "--detach", check=False)), PATIENCE)
        submit = (POLYSWEEP, "submit", spec, "--address", "http://127.0.0.1:8265", "--store", "/store")
        refused = host.run(*submit, check=False)
        assert "demands a token and none is given" in refused, refused
        submitted = host.run(*submit, RAY_AUTH_TOKEN="a" * 64)
        assert "small: submitted as polysweep-small-" in submitted, submitted

        store = Path(host.podman("volume", "inspect", "--format={{.Mountpoint}}", "polysweep_store").strip())
        wait_for(lambda: sum(record["epoch"] for record in records(store).values()) >= 4, PATIENCE)
        host.podman("kill", "--signal=KILL", host.container("worker"))
        wait_for(lambda: [r["outcome"] for r in records(store).values()] == ["finished"] * 6, PATIENCE)
        for record in records(store).values():
            starts = [session["from_epoch"] for session in record["sessions"]]
            assert starts == sorted(set(starts)) and starts[0] == 0, "an epoch that was stored is not run again"
        again = host.compose("exec", "-T", "head", "polysweep", "status", "small", "--store", "/store", "--json")
        assert json.loads(again)["counts"]["finished"] == 6
        listening = host.run("ss", "-Hltn")
        assert not re.search(r"(0\.0\.0\.0|\*|\[::\]):(8265|10001|6379)\b", listening), listening
