"""Every run once and every row, whatever the server does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from polysweep.analysis.data import wandb_api as project
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.data.wandb_api import Project
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, MAPPED, a_run, foreign, ids

pytestmark = pytest.mark.usefixtures("fresh_client")


@pytest.mark.parametrize("there", [0, 5])
def test_runs_that_are_counted_and_do_not_come_are_an_error(
    there: int, wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one page too."""
    monkeypatch.setattr(project, "PASSES", 3)
    wandb_server.load("p", [a_run(f"r{i}", [{"acc": 0.5}], {"seed": i}) for i in range(there)])
    wandb_server.miscount(1)
    with pytest.raises(
        UserError, match=f"{ADDRESS}: the server's run count does not match the runs it lists, after 3 attempts"
    ):
        pull(ADDRESS, cache=tmp_path, metric="acc")
    wandb_server.recover()
    if there:
        assert len(ids(pull(ADDRESS, cache=tmp_path, metric="acc"))) == there


def test_1200_runs_arrive_as_1200_however_their_pages_are_ordered(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [a_run(f"r{i:04d}", [{"acc": i / 1200}, {"acc": 0.5}], {"seed": i, "rho": 0.1}) for i in range(1200)]
    wandb_server.load("p", runs)
    wandb_server.shuffle(3)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc", goal="maximize")
    assert sorted(ids(pulled)) == [f"r{i:04d}" for i in range(1200)]
    assert len(pulled.history) == 2400 and set(pulled.history["trial_id"].value_counts()) == {2}
    firsts = pulled.history.drop_duplicates("trial_id").set_index("trial_id")["acc"]
    assert all(firsts[f"r{i:04d}"] == i / 1200 for i in range(1200))


def test_runs_that_come_and_go_between_pages_are_counted(
    wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the first page is deleted before the second is asked for, so that all others move up by one."""
    wandb_server.load("p", [a_run(f"r{i}", [{"acc": 0.5}], {"seed": i}) for i in range(9)])
    monkeypatch.setattr(project, "RUNS_PER_PAGE", 3)
    listed, pages = Project._pages, 0

    def disturbed(self: Project, *arguments: Any, **options: Any) -> Iterator[Any]:
        nonlocal pages
        for page in listed(self, *arguments, **options):
            pages += 1
            if pages == 1:
                wandb.Api(timeout=30).run("lab/p/r1").delete()
                wandb_server.load("p", [a_run("late", [{"acc": 0.5}], {"seed": 99})])
            yield page

    monkeypatch.setattr(Project, "_pages", disturbed)
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    assert sorted(ids(pulled)) == sorted(["late", *(f"r{i}" for i in range(9) if i != 1)])


def test_a_long_history_is_never_sampled(wandb_server: Wandb, tmp_path: Path) -> None:
    """The server gives at most 1,500 samples; 2,345 rows with gaps in their steps come in windows."""
    rows = [{"_step": 3 * at, "acc": at / 2345} for at in range(2345)]
    run = a_run("long", [], {"seed": 0}) | {"history": [json.dumps(row) for row in rows]}
    wandb_server.load("p", [run, a_run("short", [{"acc": 0.1}], {"seed": 1})])
    pulled = pull(ADDRESS, cache=tmp_path, metric="acc")
    assert pulled.history["acc"].tolist() == [*(row["acc"] for row in rows), 0.1]


def test_429_is_waited_for_as_long_as_it_says(
    wandb_server: Wandb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb_server.load("p", [a_run(f"r{i}", [{"acc": 0.5}], {"seed": i}) for i in range(6)])
    monkeypatch.setattr(project, "RUNS_PER_REQUEST", 2)
    monkeypatch.setattr(project, "REQUESTS_AT_ONCE", 1)
    wandb_server.fail(429, retry_after=2, every=2, only="Histories")
    assert len(pull(ADDRESS, cache=tmp_path, metric="acc").history) == 6
    asked = [(when, struck) for when, kind, struck in wandb_server.dump()["log"] if kind == "Histories"]
    assert sum(struck for _, struck in asked) >= 2
    for (first, struck), (second, _) in itertools.pairwise(asked):
        assert not struck or second - first >= 1.9


def test_filters_are_the_servers(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", foreign())
    pulled = pull(ADDRESS, cache=tmp_path, filters={"config.lr": 0.1}, **{**MAPPED, "tuned": []})
    assert len(pulled.runs) == 8 and set(pulled.runs["lr"]) == {0.1}
    assert len(pull(ADDRESS, cache=tmp_path, filters={}).runs) == 16, "another filter fetches anew"


@pytest.mark.parametrize(
    ("history", "why"),
    [
        (['{"_step": 0, "acc": 1}', '{"_step": "one", "acc": 1}'], "its last _step is 'one', which is not a number"),
        (['{"_step": "zero", "acc": 0.5}', '{"_step": 1, "acc": 0.5}'], "its _step is not a number"),
    ],
)
def test_a_step_that_is_text_is_named_with_a_way_to_go_on(
    history: list[str], why: str, wandb_server: Wandb, tmp_path: Path
) -> None:
    wandb_server.load("p", [a_run("a", [], {"seed": 0}, history=history), *foreign()])
    with pytest.raises(UserError) as error:
        pull(ADDRESS, cache=tmp_path, **MAPPED)
    without = {"name": {"$ne": "a"}}
    assert f"{ADDRESS}: run a cannot be read: {why}; --filter '{json.dumps(without)}' leaves it out" == str(error.value)
    assert len(pull(ADDRESS, cache=tmp_path, filters=without, **MAPPED).runs) == 16


@pytest.mark.parametrize("broken", [{"tags": 3}, {"displayName": 3}])
def test_a_run_that_is_no_run_is_named(broken: dict[str, Any], wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", [a_run("a", [{"acc": 0.5}], {"seed": 0}, attributes=broken), *foreign()])
    with pytest.raises(UserError, match="run a cannot be read: "):
        pull(ADDRESS, cache=tmp_path, **MAPPED)


def test_no_key_is_said(run_here: Callable[..., Any]) -> None:
    done = run_here("pull", ADDRESS)
    assert done.returncode == 2
    assert done.stderr == f"error: {ADDRESS}: no W&B key; set WANDB_API_KEY, or run `wandb login`\n"
