"""The images and the compose file: what can be checked without an engine."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import polysweep
from tests.support.docker import BIN, DOCKER, USER, call, locked
from tests.support.project import ROOT

TARGETS = ("cpu", "cuda")
LOCKS = [DOCKER / f"requirements-{name}.txt" for name in ("build", *TARGETS)]


# The Dockerfile and its locks.


def test_hadolint_has_nothing_to_say() -> None:
    done = call(BIN / "hadolint", DOCKER / "Dockerfile", check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_dockerfile_needs_no_hub_and_no_heredoc() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    assert "<<" not in text
    assert not re.search(r"^#\s*syntax\s*=", text, re.MULTILINE)
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
    assert {source for source, _ in stages} - {name for _, name in stages} == {"${BASE_IMAGE}"}


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_ends_as_a_numeric_user_who_is_not_root(target: str) -> None:
    (stage,) = re.findall(rf"^FROM \S+ AS {target}$(.*?)(?=^FROM|\Z)", (DOCKER / "Dockerfile").read_text(), re.S | re.M)
    assert stage.rstrip().endswith(f"\nUSER {USER}:{USER}")


def test_no_layer_is_given_an_index_or_a_credential() -> None:
    for path in (DOCKER / "Dockerfile", *DOCKER.glob("*.sh")):
        text = path.read_text()
        assert "://" not in text, path
        if path.name != "lock.sh":  # which runs on the developer's machine
            assert not re.search(r"index[-_]url|find[-_]links|trusted[-_]host|PIP_INDEX|NETRC", text, re.I), path
        for line in re.findall(r"^(?:ARG|ENV|LABEL)(?:.*\\\n)*.*", text, re.MULTILINE):
            assert not re.search(r"\w*(TOKEN|PASSW|SECRET|CREDENTIAL|API_?KEY)\w*=", line, re.I), line
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DOCKER / "Dockerfile").read_text(), re.MULTILINE)
    assert not {name for names in copied for name in names.split() if name in {".", "docker", "*"}}


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_line_of_a_lock_is_hashed_and_names_no_host(path: Path) -> None:
    for name, (_, hashes) in locked(path).items():
        assert hashes, name
        assert all(re.fullmatch("[0-9a-f]{64}", hash_) for hash_ in hashes), name


@pytest.mark.parametrize("target", TARGETS)
def test_a_lock_has_what_the_project_declares(target: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lock = locked(DOCKER / f"requirements-{target}.txt")
    declared = [Requirement(line) for line in project["project"]["dependencies"]]
    for wanted in declared:
        assert wanted.specifier.contains(lock[wanted.name][0]), wanted
    (backend,) = [Requirement(line) for line in project["build-system"]["requires"]]
    assert backend.specifier.contains(locked(DOCKER / "requirements-build.txt")[backend.name][0])


def test_the_locks_agree_but_for_torch() -> None:
    cpu, cuda = (locked(DOCKER / f"requirements-{target}.txt") for target in TARGETS)
    assert {name for name in cpu if cuda.get(name) != cpu[name]} == {"torch"}
    assert (cpu["torch"][0].local, cuda["torch"][0].local) == ("cpu", None)
    assert all(re.match(r"triton|nvidia-|cuda-", name) for name in cuda.keys() - cpu.keys())


def dockerfile_labels() -> dict[str, str]:
    pairs = re.findall(r'org\.opencontainers\.image\.([\w.]+)=("[^"]*"|\S+)', (DOCKER / "Dockerfile").read_text())
    return {name: text.strip('"') for name, text in pairs}


def test_the_labels_say_what_the_project_says_of_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert dockerfile_labels() == {
        "title": project["name"],
        "description": project["description"],
        "version": polysweep.__version__,
        "licenses": project["license"],
        "base.name": "${BASE_IMAGE}",
        "revision": "${COMMIT}",
    }


def finish(tmp_path: Path, target: str, cuda: str | None, **arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the build's last check beside a stand-in for torch that was built for this CUDA."""
    (tmp_path / "torch.py").write_text(f"__version__ = '9.9'\nclass version: cuda = {cuda!r}\n")
    build_arguments = {"COMMIT": "ab" * 20, "DIRTY": "false", **arguments}
    lock = DOCKER / f"requirements-{target}.txt"
    return subprocess.run(
        [sys.executable, DOCKER / "image_info.py", target, lock, tmp_path / "image.json"],
        env={"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", **build_arguments},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("target", "cuda", "allow"), [("cpu", None, "0"), ("cpu", "13.0", "1"), ("cuda", "13.0", "0")])
def test_an_image_knows_commit_lock_and_target(tmp_path: Path, target: str, cuda: str | None, allow: str) -> None:
    done = finish(tmp_path, target, cuda, ALLOW_CUDA_TORCH=allow)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "image.json").read_text()) == {
        "commit": "ab" * 20,
        "dirty": False,
        "lock": hashlib.sha256((DOCKER / f"requirements-{target}.txt").read_bytes()).hexdigest(),
        "target": target,
    }


@pytest.mark.parametrize(
    ("target", "cuda", "arguments", "said"),
    [
        ("cpu", "13.0", {}, "torch 9.9 is a build for CUDA 13.0"),
        ("cpu", "13.0", {"ALLOW_CUDA_TORCH": "yes"}, "--build-arg ALLOW_CUDA_TORCH=1"),
        ("cuda", None, {"ALLOW_CUDA_TORCH": "1"}, "torch 9.9 is a build without CUDA"),
        ("cpu", None, {"COMMIT": ""}, "COMMIT=''"),
        ("cpu", None, {"COMMIT": "main"}, "COMMIT='main'"),
        ("cpu", None, {"DIRTY": ""}, "DIRTY=''"),
    ],
)
def test_a_build_that_is_not_what_it_says_is_refused(
    tmp_path: Path, target: str, cuda: str | None, arguments: dict[str, str], said: str
) -> None:
    done = finish(tmp_path, target, cuda, **arguments)
    assert done.returncode == 1 and said in done.stderr
    assert not (tmp_path / "image.json").exists()


# The compose file.


def compose(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "docker-compose", "--file", DOCKER / "compose.yaml", "config", *arguments],
        env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def services(**environment: str) -> dict[str, Any]:
    done = compose("--format", "json", RAY_TOKEN_FILE="/a/token", **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def test_the_compose_file_is_valid() -> None:
    done = compose("--quiet", RAY_TOKEN_FILE="/a/token")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_compose_asks_for_the_token() -> None:
    done = compose("--quiet")
    assert done.returncode != 0 and "RAY_TOKEN_FILE" in done.stderr


def test_no_service_has_more_rights_than_it_needs_and_only_loopback_is_published() -> None:
    for name, service in services().items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"] and "cap_add" not in service
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.get("privileged") and "user" not in service and "network_mode" not in service
        assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
        assert int(service["shm_size"]) == 2**30
        assert service["healthcheck"]["test"] == ["CMD", "/opt/polysweep/healthy", name]
        ports = {(port["host_ip"], port["target"]) for port in service.get("ports", [])}
        assert ports == ({("127.0.0.1", 8265), ("127.0.0.1", 10001)} if name == "head" else set())


def test_every_service_has_the_token_as_a_file_the_store_and_the_callers_wandb_key() -> None:
    for service in services(WANDB_API_KEY="a-key").values():
        environment = service["environment"]
        assert environment["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN" not in environment
        assert [secret["target"] for secret in service["secrets"]] == [environment["RAY_AUTH_TOKEN_PATH"]]
        assert environment["POLYSWEEP_STORE"] in {mount["target"] for mount in service["volumes"]}
        assert environment["WANDB_API_KEY"] == "a-key"
    assert {service["environment"]["WANDB_API_KEY"] for service in services().values()} == {""}


def test_the_number_of_workers_is_the_callers() -> None:
    assert services()["worker"]["deploy"]["replicas"] == 2
    assert services(WORKERS="7")["worker"]["deploy"]["replicas"] == 7
