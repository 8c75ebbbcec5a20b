"""A real Slurm for tests: a controller and nodes, each in a network and with processes of its own.

The same bridge inside the namespace of one holder process as in `cluster_net`: nothing appears outside, and all ends
with the test. Needs root and Debian's slurmctld, slurmd and slurm-client.

    with Slurm(tmp_path) as slurm:
        slurm.run("sbatch", "--wait", "script.sh")
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster_net import APART, HOLD, OURS, OWN, PLUG
from tests.support.waiting import wait_for

TOOLS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "ip", "unshare", "nsenter", "setpriv")
NODE = """
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /sys/fs/cgroup  # slurmd looks for one, and needs none here
hostname "$1"
shift
"$@" &
wait
"""
CONF = """
ClusterName=test
SlurmctldHost=node0(10.77.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
KillWait=20
MinJobAge=3600
MpiDefault=none
"""


def missing() -> list[str]:
    """What this machine lacks for such a Slurm."""
    return [*(tool for tool in TOOLS if shutil.which(tool) is None), *([] if os.geteuid() == 0 else ["root"])]


@dataclass
class Slurm:
    """Nodes `node0`, ..., each with `cpus` CPUs and two GPUs that exist in name only."""

    folder: Path
    nodes: int = 2
    cpus: int = 2

    def __enter__(self) -> Slurm:
        conf = [CONF.format(folder=self.folder)]
        for number in range(self.nodes):
            conf.append(f"NodeName=node{number} NodeAddr=10.77.0.{number + 1} CPUs={self.cpus} Gres=gpu:2")
        conf.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        (self.folder / "slurm.conf").write_text("\n".join(conf) + "\n")
        (self.folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self.folder / "state").mkdir()
        hold = [*OURS, "unshare", "--mount", "--net", "sh", "-ec", HOLD]
        self.holder = subprocess.Popen(hold, stdout=subprocess.PIPE, **APART)
        self._nodes: list[subprocess.Popen[bytes]] = []
        try:
            assert self.holder.stdout is not None and self.holder.stdout.readline() == b"ready\n"
            for number in range(self.nodes):
                subprocess.run([*self._inside(), "sh", "-ec", PLUG, "sh", f"node{number}", str(number + 1)], check=True)
            for number in range(self.nodes):
                daemons = "slurmctld -D & exec slurmd -D" if number == 0 else "exec slurmd -D"
                command = [*OURS, *self._inside(number), *OWN, "sh", "-c", NODE, "sh", f"node{number}"]
                with (self.folder / f"node{number}.out").open("wb") as out:
                    self._nodes.append(
                        subprocess.Popen(
                            [*command, "sh", "-c", daemons], env=self._environment(), stdout=out, stderr=out, **APART
                        )
                    )
            wait_for(lambda: self.run("sinfo", "-h", "-o", "%D %t", check=False).stdout == f"{self.nodes} idle\n", 60)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            logs = sorted([*self.folder.glob("*.log"), *self.folder.glob("*.out")])
            error.add_note("\n".join(f"--- {log}\n{log.read_text(errors='replace')[-3000:]}" for log in logs))
        for node in self._nodes:
            node.kill()
            node.wait(timeout=30)
        self.holder.kill()
        self.holder.communicate(timeout=30)

    def run(
        self, *command: str | Path, check: bool = True, timeout: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of a user's on the first node's network, to its end."""
        done = subprocess.run(
            [*OURS, *self._inside(0), "env", f"--chdir={self.folder}", *map(str, command)],
            env=self._environment() | environment, capture_output=True, text=True, timeout=timeout, check=False,
            start_new_session=True,
        )  # fmt: skip
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
        return done

    def job(self, number: str) -> dict[str, str]:
        """What the controller says of a job, such as JobState, ExitCode, Restarts."""
        return dict(re.findall(r"(\w+)=(\S+)", self.run("scontrol", "-o", "show", "job", number).stdout))

    def _environment(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "SLURM_")) and "proxy" not in k.lower()
        }
        path = f"{Path(sys.executable).parent}:{kept['PATH']}:/usr/sbin:/sbin"
        return {**kept, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": path}

    def _inside(self, number: int | None = None) -> list[str]:
        enter = ["nsenter", "-t", str(self.holder.pid), "-m", "-n"]
        return enter if number is None else [*enter, "ip", "netns", "exec", f"node{number}"]
