"""Mistakes of a pull."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.analysis.data.pulling import pull
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, SPEC, foreign

pytestmark = pytest.mark.usefixtures("fresh_client")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wandb://lab"], "'wandb://lab' is not a W&B address; expected wandb://ENTITY/PROJECT"),
        (["wandb://lab/nowhere"], "wandb://lab/nowhere: no such project; lab has: empty, p"),
        (
            ["wandb://nobody/p"],
            "wandb://nobody/p: no such project, and none of 'nobody' can be seen; the key is of 'lab'",
        ),
        (["wandb://lab/p/no-tag"], "no run matches; lab/p has 16 runs; states: finished; tags: none; config: "),
        ([ADDRESS, "--filter", '{"config.lr": 7}'], "no run matches; lab/p has 16 runs"),
        ([ADDRESS, "--filter", "lr=7"], "--filter: not JSON"),
        ([ADDRESS, "--filter", "[1]"], "--filter: '[1]' is not a JSON object"),
        ([ADDRESS, "--map", "seed"], "--map: 'seed'; expected OURS=THEIRS"),
        ([ADDRESS, "--map", "seed=a", "--map", "seed=b"], "--map: 'seed=b': seed is mapped twice"),
        ([ADDRESS], "--metric: 'test/top1' was logged by no run; expected one of acc, val_loss"),
        ([ADDRESS, "--metric", "val_los"], "--metric: 'val_los' was logged by no run; did you mean 'val_loss'?"),
        (
            [ADDRESS, "--metric", "acc", "--tuned", "lrr"],
            "--tuned: no run has the config field 'lrr'; did you mean 'lr'?",
        ),
        ([ADDRESS, "--metric", "acc", "--map", "rho=raduis"], "--map: no run has 'raduis'"),
        ([ADDRESS, "--metric", "acc", "--map", "acc=val_loss"], "the runs have 'acc' too, and it would be lost"),
        ([ADDRESS, "--metric", "acc", "--goal", "up"], "--goal: 'up'; expected maximize or minimize"),
    ],
)
def test_a_mistake_is_named(
    arguments: list[str], message: str, wandb_server: Wandb, run_here: Callable[..., Any]
) -> None:
    wandb_server.load("p", foreign())
    wandb_server.load("empty", [])
    done = run_here("pull", *arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert message in done.stderr and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_a_spec_and_a_protocol_beside_it_are_refused(tmp_path: Path) -> None:
    spec = tmp_path / "made.yaml"
    spec.write_text(json.dumps(SPEC))
    with pytest.raises(UserError, match="--spec says what is tuned and what selects"):
        pull(ADDRESS, cache=tmp_path, spec=spec, metric="acc")
