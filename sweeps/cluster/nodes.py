"""What is asked of every node before a launch: the same package, the same Store, a W&B login, the working directory."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from polysweep.sweeps.console import warn
from polysweep.sweeps.store.provenance import THIS_VERSION, version_text
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from polysweep.trainer.text import last_line
from polysweep.trainer.wandb_client import Mode

HELLO_SECONDS: Final = 120.0


def check_nodes(store: Store, wandb: Mode, folder: str = "", *, gpus: bool = False) -> None:
    """Ask every node: the same version of the package, the same Store, a W&B key if runs are logged online.

    With `gpus`, also whether torch can use those that it has.

    Warns of nodes that lack `folder`, where relative paths of the user's own parts lead; empty: there are none.
    """
    probe = f".probe-{secrets.token_hex(8)}"
    store.files.write(probe, b"")
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        with_gpu = {node["NodeManagerAddress"] for node in nodes if node["Resources"].get("GPU")}
        hello = ray.remote(num_cpus=0, max_retries=0)(_hello(store.root, probe, folder))
        asked = {
            node["NodeManagerAddress"]: hello.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote()
            for node in nodes
        }
        lacking = []
        for node, reference in asked.items():
            try:
                answer = ray.get(reference, timeout=HELLO_SECONDS)
            except Exception as error:
                raise UserError(f"the node {node} cannot run polysweep: {last_line(error)}") from None
            if problem := _problem(answer, store, wandb, gpus and node in with_gpu):
                raise UserError(f"the node {node} {problem}")
            if not answer["folder"]:
                lacking.append(node)
        if lacking:
            warn(
                f"the working directory {folder} is not on {', '.join(lacking)}: a part of your own that reads a file "
                "by a relative path will not find it there; use absolute paths on a file system that all nodes share"
            )
    finally:
        store.files.remove(probe)


def _problem(answer: Mapping[str, Any], store: Store, wandb: Mode, needs_gpu: bool) -> str:
    """Why a node that answers so cannot take part; empty if it can."""
    if answer["version"] != THIS_VERSION:
        here, there = version_text(THIS_VERSION), version_text(answer["version"])
        return f"runs {there}, the driver {here}: install the same on both"
    if not answer["store"]:
        return f"does not see the Store {store.root}: use a file system that all nodes share, or s3://"
    if answer["store_error"]:
        return f"cannot use the Store: {answer['store_error']}"
    if wandb == "online" and not answer["key"]:
        return "has no W&B login: set WANDB_API_KEY in the environment of its Ray, or use --wandb offline"
    return f"has a GPU that torch cannot use: {answer['cuda']}" if needs_gpu and answer["cuda"] else ""


def _hello(root: str, probe: str, folder: str) -> Callable[[], dict[str, Any]]:
    """What a node answers. A function inside a function travels whole: the node's package may be another version."""

    def hello() -> dict[str, Any]:
        from polysweep.sweeps.store.provenance import THIS_VERSION
        from polysweep.trainer import device
        from polysweep.trainer.errors import UserError
        from polysweep.trainer.wandb_runs import logged_in

        store, has_probe, store_error = Store(root), True, ""
        try:
            has_probe = store.files.exists(probe)
            if has_probe:  # else a Store would be made there
                store.check_writable()
        except UserError as error:
            store_error = str(error)
        return {
            "version": dict(THIS_VERSION),
            "store": has_probe,
            "store_error": store_error,
            "key": logged_in(),
            "cuda": getattr(device, "missing_cuda", str)(),  # which an older package lacks
            "folder": not folder or Path(folder).is_dir(),
        }

    return hello
