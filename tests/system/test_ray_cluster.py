"""docker/ray-cluster.yaml: what `ray up` accepts; the head on demand, spot workers, no port open to the world."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from typing import Any, Final

import pytest
import yaml

from tests.support.docker import DOCKER
from tests.support.project import ROOT

TEXT: Final = (DOCKER / "ray-cluster.yaml").read_text()
CHECK: Final = """
import sys, yaml
from ray.autoscaler._private.util import prepare_config, validate_config
config = prepare_config(yaml.safe_load(sys.stdin))
validate_config(config)
print(config["max_workers"], sorted(config["available_node_types"]), config["head_node_type"])
"""


def as_ray_checks_it(config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """By the validator of `ray up` itself, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", CHECK], input=yaml.safe_dump(config), capture_output=True, text=True, timeout=120,
        check=False, cwd=ROOT,
    )  # fmt: skip


def cluster() -> dict[str, Any]:
    return copy.deepcopy(yaml.safe_load(TEXT))


def test_ray_accepts_it() -> None:
    done = as_ray_checks_it(cluster())
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "8 ['head', 'spot-gpu'] head"


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [((), "max_worker", 8), (("available_node_types", "spot-gpu"), "spot", True), ((), "head_node_type", "tail")],
)
def test_ray_refuses_what_it_does_not_know(place: tuple[str, ...], key: str, value: Any) -> None:
    config = cluster()
    at = config
    for name in place:
        at = at[name]
    at[key] = value
    assert as_ray_checks_it(config).returncode != 0


def test_the_head_is_on_demand_and_runs_no_trial_and_workers_are_spot_with_gpus() -> None:
    config = cluster()
    head, workers = (config["available_node_types"][name] for name in ("head", "spot-gpu"))
    assert head["resources"] == {"CPU": 0} and "InstanceMarketOptions" not in head["node_config"]
    assert "--num-cpus=0" in config["head_start_ray_commands"][-1]
    assert workers["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert workers["resources"]["GPU"] == 1 and 1 <= workers["min_workers"] < workers["max_workers"]
    assert workers["max_workers"] <= config["max_workers"]


def test_the_head_has_what_starts_workers_and_may_give_them_the_bucket() -> None:
    """Ray's autoscaler runs in our environment, and a profile that Ray makes may not pass another one on."""
    config = cluster()
    assert re.search(r"pip install .*boto3", config["setup_commands"][-1]) and config["head_setup_commands"] == []
    nodes = [one["node_config"]["IamInstanceProfile"]["Name"] for one in config["available_node_types"].values()]
    assert nodes == ["polysweep-head", "polysweep-store"]


def test_every_node_demands_the_token_and_no_port_is_open_to_the_world() -> None:
    config = cluster()
    for commands in (config["head_start_ray_commands"], config["worker_start_ray_commands"]):
        assert commands[-1].startswith("RAY_AUTH_MODE=token ")
    assert config["file_mounts"]["/home/ubuntu/.ray/auth_token"] == "~/.ray/auth_token"
    assert "0.0.0.0" not in TEXT and "security_group" not in config["provider"]
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]
    assert not re.search(r"(?i)secret|AKIA|password", TEXT)
