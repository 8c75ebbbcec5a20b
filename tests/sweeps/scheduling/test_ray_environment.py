"""What Ray reads from the environment: a token for a Ray of our own, and no credential for a cluster's workers."""

from __future__ import annotations

from polysweep.sweeps.scheduling.ray_environment import SILENT, passed_on, prepare


def test_a_ray_of_our_own_has_a_token_of_its_own_whatever_the_user_has_set() -> None:
    first, second = ({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "known"} for _ in range(2))
    prepare(None, False, first)
    prepare(None, True, second)
    assert first["RAY_AUTH_MODE"] == second["RAY_AUTH_MODE"] == "token"
    assert first["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0", "Ray then listens on loopback only"
    assert first["RAY_AUTH_TOKEN"] == second["RAY_AUTH_TOKEN"] != "known", "Ray reads it once in a process"
    assert len(bytes.fromhex(first["RAY_AUTH_TOKEN"])) == 32


def test_a_cluster_is_met_with_the_users_own_settings() -> None:
    for insecure, mode in ((False, "token"), (True, "disabled")):
        environment: dict[str, str] = {}
        prepare("auto", insecure, environment)
        assert environment == {**SILENT, "RAY_AUTH_MODE": mode}
    kept = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "the cluster's", "RAY_AIR_NEW_OUTPUT": "1"}
    environment = dict(kept)
    prepare("auto", True, environment)
    assert environment == {**SILENT, **kept}


def test_what_travels_is_listed_and_no_credential_is() -> None:
    there = {"WANDB_PROJECT": "mine", "AWS_REGION": "", "WANDB_API_KEY": "k", "AWS_SECRET_ACCESS_KEY": "s", "HOME": "/"}
    assert passed_on(there) == {"WANDB_PROJECT": "mine"}
