"""Every run once and every row, whatever the server does; and only what has changed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from polysweep.analysis.data import wandb_api as project
from polysweep.analysis.data.pulling import pull
from polysweep.analysis.data.wandb_api import Project
from polysweep.trainer.errors import UserError
from tests.support.loopback_wandb import Wandb
from tests.support.made import ADDRESS, a_run, ids

pytestmark = pytest.mark.usefixtures("fresh_client")


# Every run once, every row.


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


def test_a_count_that_disagrees_is_loud_and_what_has_arrived_is_kept(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", [a_run("a", [{"acc": 0.5}], {"seed": 0}), a_run("b", [{"acc": 0.5}], {"seed": 1}, lost=2)])
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"of 1 runs not every history row has arrived that the server counts \(b\)"
        ):
            pull(ADDRESS, cache=tmp_path, metric="acc")
    with pytest.raises(UserError, match="not every history row has arrived"):
        pull(ADDRESS, cache=tmp_path, refresh=False)
    before = wandb_server.dump()["requests"]["Histories"]
    wandb_server.load("p", [a_run("b", [{"acc": 0.5}] * 3, {"seed": 1})])
    assert len(pull(ADDRESS, cache=tmp_path).history) == 4
    assert wandb_server.dump()["requests"]["Histories"] == before + 1, "only the run that was short"


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


# Incremental.


def test_a_second_pull_fetches_only_what_has_changed(wandb_server: Wandb, tmp_path: Path) -> None:
    runs = [a_run(f"r{i}", [{"acc": 0.1 * i}] * 3, {"seed": i}, created="2026-01-01") for i in range(5)]
    wandb_server.load("p", runs)
    pull(ADDRESS, cache=tmp_path, metric="acc")
    before = wandb_server.dump()["requests"]
    assert len(pull(ADDRESS, cache=tmp_path).history) == 15
    after = wandb_server.dump()["requests"]
    assert after["Histories"] == before["Histories"] and after["Runs"] == before["Runs"] + 1
    grown = a_run("r3", [{"acc": 0.1 * 3}] * 3 + [{"acc": 0.9}], {"seed": 3}, created="2026-01-01")
    rewritten = [
        a_run("r4", [{"acc": 0.7}] * 3, {"seed": 4}, created="2026-01-02"),
        a_run("r2", [{"acc": 0.6}] * 3, {"seed": 2}, created="2026-01-01"),
        a_run("r1", [{"acc": 0.5}] * 5, {"seed": 1}, created="2026-01-01"),
    ]
    wandb_server.load("p", [grown, *rewritten, a_run("r9", [{"acc": 0.2}], {"seed": 9})])
    pulled = pull(ADDRESS, cache=tmp_path)
    by_run = {name: group.tolist() for name, group in pulled.history.groupby("trial_id")["acc"]}
    assert by_run["r3"] == [0.1 * 3] * 3 + [0.9] and by_run["r2"] == [0.6] * 3 and by_run["r1"] == [0.5] * 5
    assert by_run["r4"] == [0.7] * 3 and by_run["r9"] == [0.2] and by_run["r0"] == [0.0] * 3
    assert pull(ADDRESS, cache=tmp_path, refresh=False).history.equals(pulled.history)


def test_a_run_that_has_gone_from_the_server_goes_from_the_cache(wandb_server: Wandb, tmp_path: Path) -> None:
    wandb_server.load("p", [a_run(f"r{i}", [{"acc": 0.1 * i}], {"seed": i}) for i in range(3)])
    pull(ADDRESS, cache=tmp_path, metric="acc")
    wandb.Api(timeout=30).run("lab/p/r1").delete()
    pulled = pull(ADDRESS, cache=tmp_path)
    assert sorted(ids(pulled)) == ["r0", "r2"] and sorted(set(pulled.history["trial_id"])) == ["r0", "r2"]
