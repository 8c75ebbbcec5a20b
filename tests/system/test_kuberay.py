"""The RayJob and RayCluster for KubeRay: what it and Kubernetes know, restricted pods, spot workers, GPUs."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
import pytest
import yaml
from packaging.version import Version

from polysweep.sweeps.spec.spec import SweepSpec
from tests.support.docker import DOCKER, USER, locked

FOLDER: Final = DOCKER / "kuberay"
SCHEMA: Final = Path(__file__).with_name("kuberay-1.6.2.yaml")
KINDS: Final = ("RayJob", "RayCluster")
GROUPS: Final = ("head", "workers", "gpu-workers")
EVERY_POD: Final = pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in GROUPS])
SPOT: Final = {"cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority", "polysweep/spot"}
"""Taints of nodes that may be taken away."""


@cache
def manifests() -> dict[str, dict[str, Any]]:
    """By kind what the files have."""
    every = [one for path in FOLDER.glob("*.yaml") for one in yaml.safe_load_all(path.read_text())]
    assert len({one["kind"] for one in every}) == len(every)
    return {one["kind"]: one for one in every}


def cluster(kind: str) -> dict[str, Any]:
    """The cluster's own spec, alone or of the job."""
    spec: dict[str, Any] = manifests()[kind]["spec"]
    return spec["rayClusterSpec"] if kind == "RayJob" else spec


def pod_templates(kind: str) -> dict[str, dict[str, Any]]:
    groups = {group["groupName"]: group["template"] for group in cluster(kind)["workerGroupSpecs"]}
    return {"head": cluster(kind)["headGroupSpec"]["template"], **groups}


def validate(kind: str, spec: dict[str, Any]) -> None:
    """Raise where the operator would refuse or drop a field."""
    schema = yaml.safe_load(SCHEMA.read_text())
    jsonschema.validate(spec, {**schema, "$ref": f"#/definitions/{kind}"}, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("kind", KINDS)
def test_the_operator_knows_every_field(kind: str) -> None:
    assert manifests()[kind]["apiVersion"] == "ray.io/v1"
    validate(kind, manifests()[kind]["spec"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda spec: spec.update(minReplicas=1),
        lambda spec: spec.update(rayVersion=2.6),
        lambda spec: spec["workerGroupSpecs"][0].pop("maxReplicas"),
        lambda spec: spec["workerGroupSpecs"][0].update(replicas="1"),
        lambda spec: spec["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}),
        lambda spec: spec["autoscalerOptions"].update(version="v3"),
        lambda spec: spec["authOptions"].update(secret="x"),
    ],
)
def test_what_it_does_not_know_is_refused(spoil: Callable[[dict[str, Any]], Any]) -> None:
    spec = copy.deepcopy(cluster("RayCluster"))
    spoil(spec)
    with pytest.raises(jsonschema.ValidationError):
        validate("RayCluster", spec)


@EVERY_POD
def test_a_pod_template_is_what_kubernetes_knows(kind: str, name: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **pod_templates(kind)[name]}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("kind", ["ConfigMap", "PersistentVolumeClaim"])
def test_what_the_pods_mount_is_what_kubernetes_knows_and_has_the_mounted_name(kind: str) -> None:
    manifest = manifests()[kind]
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    assert manifest["metadata"]["name"] in json.dumps(pod_templates("RayJob")["head"]["spec"]["volumes"])


def test_the_store_outlives_the_job_and_the_cluster() -> None:
    for path in ("rayjob.yaml", "raycluster.yaml"):
        assert "PersistentVolumeClaim" not in {one["kind"] for one in yaml.safe_load_all((FOLDER / path).read_text())}


@EVERY_POD
def test_a_pod_is_restricted_and_writes_only_where_something_is_mounted(kind: str, name: str) -> None:
    spec = pod_templates(kind)[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] == USER
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["livenessProbe"] and container["readinessProbe"]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert {"/store", "/data", "/tmp", "/dev/shm"} <= mounts.keys()
    autoscaler = {"autoscaler"} if name == "head" else set()
    assert set(mounts.values()) | autoscaler == {volume["name"] for volume in spec["volumes"]}
    assert all("value" not in variable for variable in container["env"] if re.search("KEY|TOKEN", variable["name"]))


@pytest.mark.parametrize("kind", KINDS)
def test_workers_come_and_go_and_only_the_autoscaler_may_ask_kubernetes_for_them(kind: str) -> None:
    spec = cluster(kind)
    assert spec["enableInTreeAutoscaling"] is True and spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    autoscaler = spec["autoscalerOptions"]
    assert autoscaler["securityContext"] == pod_templates(kind)["head"]["spec"]["containers"][0]["securityContext"]
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert {mount["mountPath"]: mount["name"] for mount in autoscaler["volumeMounts"]}[account] == "autoscaler"
    for name, template in pod_templates(kind).items():
        (container,) = template["spec"]["containers"]
        assert account not in {mount["mountPath"] for mount in container["volumeMounts"]}, name
        assert template["spec"].get("restartPolicy", "Never") == "Never", "version 2 of the autoscaler asks for it"
    groups = spec["workerGroupSpecs"]
    assert all(group["minReplicas"] <= group["replicas"] < group["maxReplicas"] for group in groups)
    assert any(group["minReplicas"] for group in groups), "a launch is refused if no node has what it asks for"


@EVERY_POD
def test_workers_and_not_the_head_run_on_nodes_that_may_be_taken_away(kind: str, name: str) -> None:
    tolerated = {one["key"] for one in pod_templates(kind)[name]["spec"].get("tolerations", [])}
    assert tolerated & SPOT == (set() if name == "head" else SPOT)


@EVERY_POD
def test_gpu_workers_ask_for_a_gpu_and_have_the_image_for_it(kind: str, name: str) -> None:
    spec = pod_templates(kind)[name]["spec"]
    (container,) = spec["containers"]
    wanted = {size.get("nvidia.com/gpu") for size in container["resources"].values()}
    on_gpu = name == "gpu-workers"
    assert wanted == ({"1"} if on_gpu else {None})
    assert container["image"] == ("polysweep:cuda" if on_gpu else "polysweep:cpu")
    assert ("nvidia.com/gpu" in {one["key"] for one in spec.get("tolerations", [])}) == on_gpu


def test_the_rayjob_launches_its_config_maps_spec_and_again_where_its_head_is_lost() -> None:
    job = manifests()["RayJob"]["spec"]
    assert job["entrypoint"] == "polysweep launch /etc/polysweep/spec.yaml --address auto"
    spec = manifests()["ConfigMap"]["data"]["spec.yaml"]
    assert len(SweepSpec.parse(spec, "spec.yaml").trials) == 9
    assert job["backoffLimit"] > 0 and job["shutdownAfterJobFinishes"] is True
    assert "--extend" not in job["entrypoint"] and "--retry-failed" not in job["entrypoint"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_cluster_has_the_locked_ray_and_a_token(kind: str) -> None:
    assert cluster(kind)["authOptions"] == {"mode": "token", "secretName": "polysweep-ray-token"}
    locks = [DOCKER / f"requirements-{target}.txt" for target in ("cpu", "cuda")]
    assert {Version(cluster(kind)["rayVersion"])} == {locked(path)["ray"][0] for path in locks}
