"""docker/compose.yaml, run by docker-compose on podman's socket, on a host of its own. Needs root and podman."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.cluster_net import APART, OURS
from tests.support.docker import BIN, DOCKER, USER
from tests.support.waiting import wait_for

HELPERS: Final = ("/usr/lib/podman/netavark", "/usr/lib/podman/aardvark-dns", "/usr/libexec/podman/catatonit")
"""Of podman, which Debian only recommends with it: for networks, their names, and process 1 of a container."""
TOOLS: Final = ("podman", "runc", "iptables", "unshare", "nsenter")
HOLD: Final = "mount -t tmpfs tmpfs /run; ip link set lo up; echo ready; exec sleep infinity"
CONF: Final = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""


def missing() -> list[str]:
    """What this machine lacks for it."""
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    lacking += [Path(helper).name for helper in HELPERS if not Path(helper).exists()]
    return [*lacking, *([] if os.geteuid() == 0 else ["root"])]


@dataclass
class Compose:
    """A host of its own, whose loopback and bridges are not this machine's, with the images of `storage`."""

    folder: Path
    storage: Sequence[str]
    environment: dict[str, str]

    def __enter__(self) -> Compose:
        self.holder = subprocess.Popen(
            [*OURS, "unshare", "--mount", "--net", "sh", "-ec", HOLD], stdout=subprocess.PIPE, **APART
        )
        assert self.holder.stdout is not None and self.holder.stdout.readline() == b"ready\n"
        token = self.folder / "token"
        token.write_text("a" * 64)
        token.chmod(0o400)
        os.chown(token, USER, USER)
        (self.folder / "containers.conf").write_text(CONF.format(folder=self.folder))
        self._variables = {
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "HOME": str(self.folder),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"), "RAY_TOKEN_FILE": str(token),
            "DOCKER_HOST": f"unix://{self.folder}/socket", **self.environment,
        }  # fmt: skip
        self._out = (self.folder / "podman.out").open("wb")
        self._service = subprocess.Popen(
            [*OURS, *self._inside(), "podman", *self.storage, "system", "service", "--time=0",
             self._variables["DOCKER_HOST"]],
            env=self._variables, stdout=self._out, stderr=self._out, **APART,
        )  # fmt: skip
        wait_for((self.folder / "socket").exists, 60, self._service)
        self._ended = threading.Event()
        self._checks = threading.Thread(target=self._check_health, daemon=True)
        self._checks.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "--volumes", "--timeout=5", check=False)
        self._ended.set()
        self._checks.join()
        for process in (self._service, self.holder):
            process.kill()
            process.communicate(timeout=30)
        self._out.close()

    def compose(self, *arguments: str, check: bool = True, timeout: float = 600) -> str:
        """What `docker compose ARGUMENTS` prints."""
        return self.run(
            BIN / "docker-compose", "--file", DOCKER / "compose.yaml", *arguments, check=check, timeout=timeout
        )

    def podman(self, *arguments: str, check: bool = True) -> str:
        return self.run("podman", *self.storage, *arguments, check=check)

    def run(self, *command: str | Path, check: bool = True, timeout: float = 600, **environment: str) -> str:
        """What a command on the host prints, its errors too."""
        done = subprocess.run(
            [*OURS, *self._inside(), *map(str, command)], env=self._variables | environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, (command, done.stdout[-4000:])
        return done.stdout

    def container(self, service: str, number: int = 1) -> str:
        return f"polysweep-{service}-{number}"

    def _check_health(self) -> None:
        """What systemd's timers do on other machines: podman itself has no clock."""
        while not self._ended.wait(2):
            for name in self.podman("ps", "--format={{.Names}}", check=False).split():
                self.podman("healthcheck", "run", name, check=False)

    def _inside(self) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-m", "-n"]
