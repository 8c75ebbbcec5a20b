"""The cluster of the tests is a real one: jobs run, the token counts, a dead node is missed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.cluster_net import Cluster

COUNT = """python -c "import ray; ray.init(); print(len([n for n in ray.nodes() if n['Alive']]))" """
SUBMIT = """
import sys, time
from ray.job_submission import JobSubmissionClient
client = JobSubmissionClient(sys.argv[1])
job = client.submit_job(entrypoint=sys.argv[2])
while not client.get_job_status(job).is_terminal():
    time.sleep(0.1)
print(client.get_job_status(job), client.get_job_logs(job).split())
"""


@pytest.mark.long
def test_a_job_needs_the_token_and_sees_the_nodes_and_a_killed_node_is_missed(tmp_path: Path) -> None:
    submit = (sys.executable, "-c", SUBMIT, Cluster.dashboard, COUNT)
    with Cluster(tmp_path, token="a-token-of-the-test") as cluster:
        done = cluster.run(*submit)
        assert "SUCCEEDED" in done.stdout, done
        assert "'3'" in done.stdout, done
        refused = cluster.run(*submit, token=False)
        assert refused.returncode != 0
        assert "Missing authentication token" in refused.stderr
        cluster.kill_node(2)
        cluster.wait_alive(2)
        assert "'2'" in cluster.run(*submit).stdout
    assert not cluster.temp.exists()
    assert cluster.holder.returncode is not None
