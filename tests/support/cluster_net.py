"""A real Ray cluster for tests: every node has its own network, processes, /dev/shm and Ray folder.

The nodes hang on a bridge inside the network namespace of one holder process, whose private /run has the names `node0`,
`node1`, ... and `laptop`. No name, link or listening port appears outside, so clusters cannot collide. The holder and
the nodes end when the test process does, even by SIGKILL. Needs root and `iproute2`.

    with Cluster(tmp_path, token="secret") as cluster:
        cluster.run("python", "-c", "import ray; ray.init('ray://10.77.0.1:10001')")

To look inside: `nsenter -t HOLDER -m -n ip netns exec laptop bash`, with the process id `cluster.holder.pid`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.support.processes import kill_group
from tests.support.waiting import wait_for

START = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory=100000000"]
HEAD = ["--head", "--port=6379", "--ray-client-server-port=10001"]
HEAD += ["--include-dashboard=true", "--dashboard-host=10.77.0.1", "--dashboard-port=8265"]
READY_SECONDS = 120.0  # a head is up after about 5 s, on a busy machine much later
APART: Any = {"stdin": subprocess.DEVNULL, "start_new_session": True}
OWN = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--mount-proc")
OURS = ("setpriv", "--pdeathsig", "KILL")  # the process dies with the thread that started it

HOLD = """
mount -t tmpfs tmpfs /run
ip link add bridge up type bridge
echo ready
exec sleep infinity
"""
PLUG = """
ip netns add $1
ip link add $1 master bridge up type veth peer name eth0 netns $1
ip -n $1 address add 10.77.0.$2/24 dev eth0
for link in lo eth0; do ip -n $1 link set $link up; done
"""
# The shell stays as process 1 of the node and reaps what Ray's processes leave.
NODE = """
folder=$1; temp=$2; name=$3; hidden=$4; shift 4
mount -t tmpfs tmpfs /dev/shm
mount --bind "$folder" "$temp"
printf %s "$hidden" | while read -r path; do mount -t tmpfs tmpfs "$path"; done
hostname "$name"
cd "$temp"
"$@"
exit $?
"""
GET = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.argv[2]})
sys.stdout.buffer.write(urllib.request.urlopen(request, timeout=10).read())
"""
CONNECT = "import socket; socket.create_connection(('10.77.0.1', 10001), 5)"


def possible() -> bool:
    """Whether this machine lets the calling process make such a cluster."""
    return os.geteuid() == 0 and all(map(shutil.which, ("ip", "unshare", "nsenter", "setpriv", "mount")))


@dataclass
class Cluster:
    """A head (node 0), workers (nodes 1, 2, ...) and a laptop that is on their network but no node."""

    folder: Path  # where the laptop's commands run
    nodes: int = 3  # to start with, head included
    _: KW_ONLY
    token: str | None  # None: the cluster accepts everybody
    cpus: int = 1  # of each node, as Ray counts them
    environment: Mapping[str, str] = field(default_factory=dict)  # added to that of all nodes
    node_environment: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # added to that of one node
    hide: Sequence[Path] = ()  # folders that no node sees, as if they were only on the laptop
    address: ClassVar[str] = "10.77.0.1:6379"
    client_address: ClassVar[str] = "ray://10.77.0.1:10001"
    dashboard: ClassVar[str] = "http://10.77.0.1:8265"
    laptop: ClassVar[int] = -1  # its number as a place to run commands

    def __enter__(self) -> Cluster:
        self.temp = Path(tempfile.mkdtemp(prefix="net", dir="/tmp"))  # short: sockets lie below
        self.started: list[subprocess.Popen[bytes]] = []  # the `unshare` of each node, also of dead ones
        self._firsts: list[Path | None] = []  # /proc/N of each node's process 1; None: it was killed
        self._commands: list[subprocess.Popen[str]] = []
        (self.temp / "ray").mkdir()  # each node has its own folder here
        (self.temp / "token").write_text(self.token or "")
        hold = [*OURS, "unshare", "--mount", "--net", "sh", "-ec", HOLD]
        self.holder = subprocess.Popen(hold, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **APART)
        try:
            said = self.holder.stdout.readline() if self.holder.stdout else b""
            assert said == b"ready\n", f"no network: {said!r}"
            self._plug("laptop", 200)
            self._start_node()
            self._wait_up(1)
            for _ in range(1, self.nodes):
                self._start_node()
            self._wait_up(self.nodes)
            wait_for(lambda: self._quick("laptop", sys.executable, "-ISc", CONNECT).returncode == 0, READY_SECONDS)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Kill everything that was started, and remove the folder; the network goes with its last process."""
        if error is not None:
            error.add_note(self.output())
        self._quick(None, "sh", "-c", "kill -KILL $(ip netns pids laptop)")  # also what left its group
        for process in self._commands:
            kill_group(process)
            for stream in filter(None, (process.stdout, process.stderr)):
                stream.close()
        for number in range(len(self._firsts)):
            self.kill_node(number)
        self.holder.kill()
        self.holder.communicate(timeout=30)
        shutil.rmtree(self.temp)

    def run(self, *command: str | Path, timeout: float = 120.0, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `options` as of `start`. At subprocess.TimeoutExpired its group is dead."""
        process = self.start(*command, **{"stderr": subprocess.PIPE, **options})
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            kill_group(process)
        self._commands.remove(process)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def start(
        self,
        *command: str | Path,
        node: int = laptop,
        environment: Mapping[str, str] | None = None,
        token: bool = True,
        cwd: Path | None = None,
        stderr: int = subprocess.STDOUT,
    ) -> subprocess.Popen[str]:
        """Start a command on the laptop or a node in a process group of its own; signal the group, not the process.

        Without `token` it knows neither token nor mode. Call it in a thread that outlives the command.
        """
        enter, home = self._beside_bridge("laptop"), self.folder
        if node != self.laptop:
            first = self._firsts[node]
            assert first is not None, f"node {node} was killed"
            enter, home = ["nsenter", "-t", first.name, "-m", "-n", "-p", "-u", "-i"], self.temp / "ray"
        process = subprocess.Popen(
            [*OURS, *enter, "env", f"--chdir={cwd or home}", *map(str, command)],
            env=self._variables(token, node) | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            **APART,
        )
        self._commands.append(process)
        return process

    def kill_node(self, node: int) -> None:
        """Sudden death: SIGKILL to all of the node's processes at once, and wait until they are gone."""
        self.started[node].kill()  # --kill-child takes process 1, the kernel the rest
        self.started[node].wait(timeout=30)
        first, self._firsts[node] = self._firsts[node], None
        wait_for(lambda: first is None or not first.exists(), 30)  # process 1 goes last

    def add_node(self) -> int:
        """Start one more worker and wait until it is alive; returns its number."""
        self._wait_up(self.alive() + 1, self._start_node())
        return len(self.started) - 1

    def alive(self) -> int:
        """How many nodes the head counts as alive; 0 when it does not answer. Takes 0.1 s."""
        answer = self.get("/api/v0/nodes")
        return sum(node["state"] == "ALIVE" for node in answer["data"]["result"]["result"]) if answer else 0

    def wait_alive(self, count: int, seconds: float = READY_SECONDS) -> None:
        """Wait until exactly so many nodes are alive. The head takes 16 s to notice a death."""
        wait_for(lambda: self.alive() == count, seconds)

    def get(self, path: str) -> Any:
        """The dashboard's JSON answer to the laptop with the token, or None when there is none."""
        done = self._quick("laptop", sys.executable, "-ISc", GET, self.dashboard + path, self.token or "")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def output(self) -> str:
        """What the nodes printed, and the end of their Ray processes' error logs."""
        logs = [*self.temp.glob("out*"), *self.temp.glob("node*/session_2*/logs/*.err")]
        full = [log for log in sorted(logs) if log.stat().st_size]
        return "\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}" for log in full)

    def _start_node(self) -> int:
        number = len(self.started)
        name, here = f"node{number}", f"10.77.0.{number + 1}"
        self._plug(name, number + 1)
        (self.temp / name).mkdir()
        hidden = "".join(f"{path.resolve()}\n" for path in self.hide)
        shell = ["sh", "-ec", NODE, "sh", str(self.temp / name), str(self.temp / "ray"), name, hidden]
        ray = [*START, f"--temp-dir={self.temp}/ray", f"--num-cpus={self.cpus}", f"--node-ip-address={here}"]
        ray += HEAD if number == 0 else [f"--address={self.address}"]
        command = [*OURS, *self._beside_bridge(name), *OWN, *shell, *ray]
        with (self.temp / f"out{number}").open("wb") as out:
            options = {"env": self._variables(True, number), "stdout": out, "stderr": out, **APART}
            node: subprocess.Popen[bytes] = subprocess.Popen(command, **options)
        self.started.append(node)
        self._firsts.append(None)
        children = Path(f"/proc/{node.pid}/task/{node.pid}/children")
        self._firsts[number] = Path("/proc", wait_for(lambda: children.read_text().strip(), 30))
        return number

    def _plug(self, name: str, last: int) -> None:
        """Make the network namespace `name` and connect it to the bridge as 10.77.0.`last`."""
        done = self._quick(None, "sh", "-ec", PLUG, "sh", name, str(last))
        assert done.returncode == 0, f"{name}: {done.stderr}"

    def _beside_bridge(self, name: str | None = None) -> list[str]:
        """The prefix of a command that runs beside the bridge or, with a name, in one of the networks."""
        return ["nsenter", "-t", str(self.holder.pid), "-m", "-n", *(["ip", "netns", "exec", name] if name else [])]

    def _quick(self, name: str | None, *command: str) -> subprocess.CompletedProcess[str]:
        whole = [*self._beside_bridge(name), *command]
        return subprocess.run(whole, capture_output=True, text=True, timeout=30, check=False)

    def _wait_up(self, count: int, first: int = 0) -> None:
        """Wait until so many nodes are alive; fails at once when one ends that was started as `first` or later."""
        deadline = time.monotonic() + READY_SECONDS
        while self.alive() != count:
            assert all(node.poll() is None for node in self.started[first:]), "a node ended"
            assert time.monotonic() < deadline, f"not {count} nodes after {READY_SECONDS} s"

    def _variables(self, token: bool, node: int) -> dict[str, str]:
        """The test's environment without its Ray settings and proxies; with `token`, how to reach the cluster."""
        mode = {"RAY_AUTH_MODE": "disabled"}
        if self.token is not None:
            mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.temp / "token")}
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") and not k.lower().endswith("_proxy")}
        home = {"HOME": str(self.temp / "ray"), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONUNBUFFERED": "1"}
        home["GRPC_ENABLE_FORK_SUPPORT"] = "false"  # as in our images
        path = {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}  # finds `python` of a job's entry point
        extra = {} if node == self.laptop else {**self.environment, **self.node_environment.get(node, {})}
        return kept | home | path | (mode if token else {}) | extra
