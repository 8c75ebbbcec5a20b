"""Names that wandb, wandb-workspaces, s3fs and ray keep to themselves and that are used here: one test each.

Versions have upper bounds for them: a new version is let in once these pass with it.
"""

from __future__ import annotations

import threading
import tomllib
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import wandb
from packaging.requirements import Requirement

from polysweep.trainer.wandb_client import Run, end_client, open_run, service_process
from tests.support.loopback_wandb import Wandb
from tests.support.project import ROOT

BOUNDED = ("wandb", "wandb-workspaces", "s3fs", "ray")


@pytest.mark.parametrize("name", BOUNDED)
def test_a_package_whose_private_names_are_used_has_an_upper_bound(name: str) -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (found,) = [one for one in map(Requirement, needed) if one.name == name]
    assert any(one.operator in ("<", "~=", "==") for one in found.specifier)
    assert metadata.version(name) in found.specifier


def test_wandb_has_its_service_as_a_process_that_can_be_ended(wandb_server: Wandb, fresh_client: None) -> None:
    """`wandb_setup._singleton._connection._proc._process`."""
    assert service_process() is None
    wandb.Api(timeout=30)
    process = service_process()
    assert process is not None and process.poll() is None
    end_client()
    assert process.poll() is not None and service_process() is None


def test_a_run_of_wandb_has_a_thread_that_can_be_stopped(
    wandb_server: Wandb, fresh_client: None, tmp_path: Path
) -> None:
    """`Run._run_status_checker.stop`: without it the thread fails loudly once the service has ended."""
    run = Run("a", "a", "g", "j", (), {})
    live = open_run(run, "online", tmp_path)
    assert live._run_status_checker is not None
    threads = [one for one in threading.enumerate() if one.name == "NetStatThr"]
    assert threads
    end_client()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_wandb_executes_a_query_of_ours(wandb_server: Wandb, fresh_client: None) -> None:
    """`Api._service_api.execute_graphql`, with the answer as text where that is asked for."""
    api: Any = wandb.Api(timeout=30)
    asked = 'query Ours($entity: String!) { project(name: "none", entityName: $entity) { id } }'
    assert api._service_api.execute_graphql(asked, {"entity": "lab"}) == {"project": None}
    assert api._service_api.execute_graphql(asked, {"entity": "lab"}, parse=str.encode) == b'{"project": null}'


def test_wandbs_errors_of_an_ended_service_are_where_they_are_looked_for() -> None:
    from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError

    assert issubclass(HandleAbandonedError, Exception) and issubclass(MailboxClosedError, Exception)


def test_a_workspace_has_the_ids_that_are_set_here() -> None:
    """`_internal_name`, `_internal_id`, `_internal_runset_id`, `_to_model`, and `_id` of a panel."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import wandb_workspaces.reports.v2 as wr
        import wandb_workspaces.workspaces as ws
    panel: Any = wr.LinePlot(x="Step", y=["loss"])
    view: Any = ws.Workspace(entity="lab", project="p", name="n", sections=[ws.Section(name="s", panels=[panel])])
    panel._id = "ours"
    view._internal_name, view._internal_id, view._internal_runset_id = "nw-ours-v", "id", "runset"
    found = view._to_model().model_dump_json(by_alias=True)
    assert all(word in found for word in ('"nw-ours-v"', '"id":"id"', '"runset"', '"ours"'))


def test_s3fs_has_what_the_store_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """`retries`, `_strip_protocol`, `_lsdir` with `refresh`, and the loop that `fsspec.asyn.sync` takes."""
    import inspect

    import fsspec.asyn
    import s3fs

    files = s3fs.S3FileSystem(anon=True, skip_instance_cache=True)
    assert isinstance(files.retries, int) and files._strip_protocol("s3://bucket/a/") == "bucket/a"
    assert inspect.iscoroutinefunction(files._lsdir) and "refresh" in inspect.signature(files._lsdir).parameters
    assert callable(fsspec.asyn.sync) and files.loop is not None


def test_ray_names_the_cluster_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`ray._private.services.get_ray_address_from_environment`."""
    from ray._private.services import get_ray_address_from_environment

    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    assert get_ray_address_from_environment("auto", str(tmp_path)) == "127.0.0.1:6379"
