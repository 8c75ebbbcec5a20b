"""The run that has a report's plots: one for each sweep, a step for each publishing, and no trial."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from struct import pack
from typing import Final

import pytest
import wandb

from polysweep.sweeps.store.store import Store
from polysweep.sweeps.tracking.summary_run import PREFIX, Plot, is_summary, send_plots, summary_ids
from polysweep.sweeps.tracking.sync import sync
from polysweep.sweeps.tracking.wandb_server import open_api, require_runs
from polysweep.trainer.errors import UserError
from polysweep.trainer.wandb_client import Run, end_client
from tests.support.finished_trials import FLATS, IDS
from tests.support.finished_trials import store as store
from tests.support.loopback_wandb import Wandb

pytestmark = pytest.mark.usefixtures("fresh_client")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))


PIXEL: Final = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\0"))
    + _chunk(b"IEND", b"")
)
ID: Final = f"{PREFIX}abc"
RUN: Final = Run(ID, "report", "", "report", (), {}, ("lab", "p"))


def test_every_publishing_is_one_more_step_of_one_run(wandb_server: Wandb) -> None:
    for caption in ("first", "second"):
        assert send_plots(RUN, [Plot("plots/a", PIXEL, caption), Plot("plots/b", PIXEL, caption)]) == ID
    found = wandb_server.dump()
    assert found["projects"] == {"lab/p": [ID]} and found["unknown"] == []
    run = found["runs"][ID]
    assert (run["state"], run["attributes"]["jobType"], run["attributes"].get("tags", [])) == ("finished", "report", [])
    rows = [json.loads(line) for line in run["history"]]
    assert [(row["_step"], row["plots/a"]["caption"]) for row in rows] == [(0, "first"), (1, "second")]
    sizes = [size for path, size in found["files"].items() if path.startswith(f"lab/p/{ID}/media/images/plots/")]
    assert sizes and set(sizes) == {len(PIXEL)}, "the images arrived as they are"


def test_a_run_that_was_deleted_is_followed_by_another(wandb_server: Wandb) -> None:
    plots = [Plot("plots/a", PIXEL, "")]
    for number in (1, 2):
        run_id = send_plots(RUN, plots)
        assert run_id == (ID if number == 1 else f"{ID}-{number}") and run_id in summary_ids(ID)
        wandb.Api(timeout=30).run(f"lab/p/{run_id}").delete()
        end_client(0.5)  # as the next command has a client of its own


def test_what_the_server_does_not_take_is_an_error(wandb_server: Wandb) -> None:
    wandb_server.protect("lab/p")
    with pytest.raises(UserError, match=r"^the plots cannot be uploaded: .*permission denied: lab/p") as refused:
        send_plots(RUN, [Plot("plots/a", PIXEL, "")])
    assert "\n" not in str(refused.value)
    assert wandb_server.dump()["projects"] == {}


def test_sync_does_not_count_it(store: Store, wandb_server: Wandb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "p")
    send_plots(RUN, [Plot("plots/a", PIXEL, "")])
    said: list[str] = []
    assert sync("s", FLATS, store, said.append) == 0
    assert said[0].startswith(f"s: 0 W&B runs were complete, {len(IDS)} uploaded")
    said.clear()
    assert sync("s", FLATS, store, said.append) == 0 and said[0].startswith(f"s: {len(IDS)} W&B runs were complete")
    assert ID in wandb_server.dump()["runs"]


def test_an_id_of_a_trial_is_none_of_these() -> None:
    assert is_summary(ID) and not any(map(is_summary, IDS))
    assert list(summary_ids(ID))[:2] == [ID, f"{ID}-2"]


def test_a_project_without_runs_is_named(wandb_server: Wandb, tmp_path: Path) -> None:
    api, entity = open_api(30, None)
    with pytest.raises(UserError, match=r"^here: lab/p: Project `lab/p` not found$"):
        require_runs(api, "lab/p", "s", "here: ")
    wandb_server.load("p", [{"name": "a", "attributes": {"tags": ["t"]}}])
    require_runs(open_api(30, None)[0], "lab/p", "t", "here: ")
    require_runs(open_api(30, None)[0], "lab/p", None, "here: ")
    with pytest.raises(UserError, match=r"^here: lab/p: no run has the tag 's'; polysweep sync s uploads those of"):
        require_runs(open_api(30, None)[0], f"{entity}/p", "s", "here: ")
    wandb_server.load("empty", [])
    with pytest.raises(UserError, match=r"^here: lab/empty: no run is there$"):
        require_runs(open_api(30, None)[0], "lab/empty", None, "here: ")
