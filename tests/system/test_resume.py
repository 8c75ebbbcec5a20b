"""Exact resume: killed at any instant and continued, a trial is bitwise what it would have been; damage is named."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from polysweep.sweeps.store import record as record_module
from polysweep.sweeps.store.provenance import differences
from polysweep.sweeps.store.store import Store, StoreError
from polysweep.sweeps.worker.stack_run import StackRun
from polysweep.trainer.checkpoint import DamagedError, dumps, loads
from polysweep.trainer.config import TrialConfig
from polysweep.trainer.train import train
from tests.support import mini_cifar
from tests.support.project import TINY
from tests.support.results import records
from tests.support.resuming import CONFIG, VALUES, job, outcome, run_to_the_end
from tests.support.training import untimed
from tests.support.waiting import wait_for


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.long)])
def test_kills_at_random_instants_change_no_bit_and_lose_only_the_epoch_in_flight(tmp_path: Path, count: int) -> None:
    """Every other one strikes in the middle of a write."""
    data, reported = tmp_path / "data", tmp_path / "reported"
    mini_cifar.write_archives(data)
    run_to_the_end(tmp_path / "whole", data, tmp_path / "ignored")
    reported.write_text("0")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torchvision", "polysweep.trainer.train", "polysweep.sweeps.worker.stack_run", mini_cifar.__name__]
    )
    chance = random.Random(7)
    epochs, kills = [], 0
    while kills < count:
        in_write = chance.randrange(1, 24) if kills % 2 else None
        child = context.Process(target=run_to_the_end, args=(tmp_path / "parts", data, reported, in_write))
        before = int(reported.read_text())
        child.start()
        if in_write is None:
            wait_for(lambda: int(reported.read_text() or 0) > before)  # noqa: B023
            time.sleep(chance.uniform(0.0, 0.2))
            child.kill()
        child.join(60)
        if child.exitcode == 0:
            break  # it was faster than all kills: the assertion below says so
        assert child.exitcode == -signal.SIGKILL
        kills += 1
        store = Store(str(tmp_path / "parts"))
        content = store.files.read(f"trials/{CONFIG.trial_id}/checkpoint.pt")
        epochs.append(0 if content is None else loads(content)["epoch"])
        assert epochs[-1] >= int(reported.read_text()), "an epoch that was stored stays stored"
    assert kills == count
    assert len(set(epochs)) >= count // 2, f"every other kill comes after another epoch: {epochs}"
    run_to_the_end(tmp_path / "parts", data, reported)
    (history, row), (expected_history, expected_row) = outcome(tmp_path / "parts"), outcome(tmp_path / "whole")
    assert history == expected_history and len(history) == VALUES["epochs"]
    assert row.keys() == expected_row.keys()
    assert all(torch.equal(row[name], expected_row[name]) for name in row)
    (record,) = records(tmp_path / "parts").values()
    assert record["notes"] == [], "nothing was damaged by the kills"


# Damage.

SMALL = TrialConfig.parse({**TINY, "epochs": 4})


def interrupted(store: Path, epochs: int) -> Path:
    """A store in which the small trial has stopped after some epochs; returns the trial's folder."""
    run = StackRun(job(store, Path(), SMALL))
    for _ in range(epochs):
        assert run.advance()
    run.close()
    return store / "trials" / SMALL.trial_id


def finish(store: Path) -> dict:
    """Continue the small trial to its end, as launches would; its record."""
    for _ in range(2):
        run = StackRun(job(store, Path(), SMALL))
        while run.advance() is not None and not run.is_over:
            pass
        run.close()
    return records(store)[SMALL.trial_id]


def flip_a_bit(path: Path) -> None:
    """In the middle of the largest tensor's bytes."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize("damage", [flip_a_bit, cut])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    interrupted(tmp_path / "whole", 4)
    folder = interrupted(tmp_path / "parts", 3)
    damage(folder / "checkpoint.pt")
    record = finish(tmp_path / "parts")
    (note,) = record["notes"]
    assert note.startswith(f"went back to epoch 2: trials/{SMALL.trial_id}/checkpoint.pt is damaged: ")
    assert record["outcome"] == "finished"
    (history, row), (expected_history, expected_row) = (outcome(tmp_path / n, SMALL) for n in ("parts", "whole"))
    assert history == expected_history
    assert all(torch.equal(row[name], expected_row[name]) for name in row)


def test_without_a_checkpoint_that_is_whole_the_trial_starts_over(tmp_path: Path) -> None:
    interrupted(tmp_path / "whole", 4)
    folder = interrupted(tmp_path / "parts", 3)
    flip_a_bit(folder / "checkpoint.pt")
    cut(folder / "checkpoint-before.pt")
    (note,) = finish(tmp_path / "parts")["notes"]
    assert note.startswith("started over: ") and "checkpoint.pt is damaged" in note
    assert "checkpoint-before.pt is damaged" in note
    assert outcome(tmp_path / "parts", SMALL)[0] == outcome(tmp_path / "whole", SMALL)[0]


def test_a_lost_checkpoint_is_noted_too(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 3)
    (folder / "checkpoint.pt").unlink()
    (note,) = finish(tmp_path)["notes"]
    assert note == f"went back to epoch 2: trials/{SMALL.trial_id}/checkpoint.pt is missing"


def test_a_checkpoint_of_another_format_says_so() -> None:
    buffer = io.BytesIO()
    torch.save({"format": 1, "epoch": 3}, buffer)
    with pytest.raises(DamagedError, match="it has format 1, this version reads 2"):
        loads(buffer.getvalue())


def test_a_record_that_cannot_be_read_leaves_no_claim(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 1)
    there = job(tmp_path, Path(), SMALL)
    (folder / "record.json").write_text("{")
    run = StackRun(there)
    with pytest.raises(StoreError, match=r"record\.json: damaged"):
        run.advance()
    run.close()
    assert Store(str(tmp_path)).owner(SMALL.trial_id) is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trial_id", "abc", r"record\.json: damaged: belongs to trial 'abc'"),
        ("notes", None, r"record\.json: damaged: notes: Input should be a valid list \(got None\)"),
        ("width", 3, r"checkpoint\.pt has K = 1, the trial's record\.json has 3"),
    ],
)
def test_a_record_that_contradicts_its_trial_destroys_nothing(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    folder = interrupted(tmp_path, 3)
    there = replace(job(tmp_path, Path(), SMALL), width=3 if key == "width" else 1)
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, key: value}))
    before = {path: path.read_bytes() for path in folder.glob("*.pt")}
    run = StackRun(there)
    with pytest.raises(StoreError, match=message):
        run.advance()
    run.close()
    assert {path: path.read_bytes() for path in folder.glob("*.pt")} == before and len(before) == 2


def test_rows_regrouped_between_neighbours_with_and_without_momentum_are_bitwise_their_own() -> None:
    """Of one stack, two epochs each in other company: what a neighbour remembers is not a row's own."""
    rows = [
        TrialConfig.parse({**TINY, "epochs": 4, "seed": 0, "momentum": 0.5}),
        TrialConfig.parse({**TINY, "epochs": 4, "seed": 1, "scheduler": "cosine", "lr": 0.1}),
        TrialConfig.parse({**TINY, "epochs": 4, "seed": 2, "momentum": 0.9, "scheduler": "constant", "lr": 0.01}),
    ]
    whole = list(train(rows))
    first = list(itertools.islice(train(rows), 2))[-1]
    saved = [loads(dumps(report.checkpoint())) for report in first]
    for group in ([1], [2, 0], [1, 2]):
        rest = list(train([rows[n] for n in group], width=3, checkpoints=[saved[n] for n in group]))
        for place, n in enumerate(group):
            ours, theirs = rest[-1][place].checkpoint(), whole[-1][n].checkpoint()
            assert [untimed(row) for row in ours["history"]] == [untimed(row) for row in theirs["history"]]
            assert torch.equal(ours["row"]["theta"], theirs["row"]["theta"])


def test_a_damaged_history_is_made_anew_from_the_checkpoint(tmp_path: Path) -> None:
    interrupted(tmp_path / "whole", 4)
    folder = interrupted(tmp_path / "parts", 3)
    cut(folder / "history.parquet")
    assert finish(tmp_path / "parts")["notes"] == []
    assert outcome(tmp_path / "parts", SMALL)[0] == outcome(tmp_path / "whole", SMALL)[0]


def test_a_trial_that_has_ended_keeps_one_checkpoint(tmp_path: Path) -> None:
    folder = interrupted(tmp_path, 2)
    assert (folder / "checkpoint-before.pt").exists()
    finish(tmp_path)
    assert sorted(path.name for path in folder.glob("checkpoint*")) == ["checkpoint.pt"]


def test_every_bit_of_a_checkpoint_is_under_its_checksum() -> None:
    """Names, numbers, types and tensors: whatever is changed is refused; the file stays one that torch reads."""
    checkpoint = {
        "format": 2, "epoch": 3, "history": [{"test/top1": 0.5, "val/top1": None}],
        "row": {"theta": torch.arange(4.0), "counters": torch.zeros(0, dtype=torch.int64)},
    }  # fmt: skip
    content = dumps(checkpoint)
    assert loads(content)["history"] == checkpoint["history"]
    for change in (
        {"epoch": 4},
        {"history": [{"test/top1": 0.25, "val/top1": None}]},
        {"row": {**checkpoint["row"], "theta": torch.arange(4.0).double()}},  # type: ignore[dict-item]
        {"row": {"theta": torch.tensor([0.0, 1, 2, 4]), "counters": torch.zeros(0, dtype=torch.int64)}},
        {"row": {"velocity": torch.arange(4.0), "counters": torch.zeros(0, dtype=torch.int64)}},
    ):
        found = torch.load(io.BytesIO(content), weights_only=True)
        buffer = io.BytesIO()
        torch.save({**found, **change}, buffer)
        with pytest.raises(DamagedError, match="SHA-256"):
            loads(buffer.getvalue())
    for position in range(0, len(content) - 1, 97):
        hit = bytearray(content)
        hit[position] ^= 0xFF
        with contextlib.suppress(DamagedError):
            assert loads(bytes(hit))["epoch"] == 3, "only where the byte belongs to nothing, as padding does"


# Elsewhere.


def test_continuing_with_another_thread_count_or_device_model_warns_and_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable, spec_file: Callable
) -> None:
    folder = interrupted(tmp_path / "store", 2)
    real = record_module.provenance
    monkeypatch.setattr(record_module, "provenance", lambda *a: {**real(*a), "device_model": "Abacus 3"})
    (note,) = finish(tmp_path / "store")["notes"]
    assert note.startswith("continued after epoch 2 on another kind of device: device_model ")
    assert "'Abacus 3' now" in note
    assert folder.exists()
    assert differences({"device_model": "A", "threads": 1}, {"device_model": "A", "threads": 1}) == ""
    assert differences({"threads": 1}, {"threads": 2}) == "threads 1 before, 2 now"


def test_continuing_with_another_source_of_an_own_part_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "own_sources", lambda _: {"model": "aaaaaaaaaaaa"})
    interrupted(tmp_path / "store", 2)
    monkeypatch.setattr(record_module, "own_sources", lambda _: {"model": "bbbbbbbbbbbb"})
    record = finish(tmp_path / "store")
    assert record["notes"] == [
        "continued after epoch 2 with another source of its model: aaaaaaaaaaaa, now bbbbbbbbbbbb"
    ]
    sources = [session["provenance"]["sources"] for session in record["sessions"]]
    assert sources == [{"model": "aaaaaaaaaaaa"}, {"model": "bbbbbbbbbbbb"}]


def test_a_launch_warns_before_it_continues_on_another_kind_of_device(
    tmp_path: Path, launch_here: Callable, spec_file: Callable
) -> None:
    store = tmp_path / "store"
    folder = interrupted(store, 2)
    record = Store(str(store)).record(SMALL.trial_id)
    assert record is not None
    record["provenance"]["device_model"] = "Abacus 3"
    Store(str(store)).write_record(SMALL.trial_id, {k: v for k, v in record.items() if k != "format"})
    spec = spec_file(
        parameters={key: {"value": value} for key, value in {**TINY, "epochs": 4}.items()}, variants=[{}], tuned=[],
        seeds=1, launch={"stack": 1},
    )  # fmt: skip
    answer = launch_here(spec, "--store", store)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "warning: 1 trials continue on another kind of device: device_model 'Abacus 3' before" in answer.stderr
    assert len(records(store)[SMALL.trial_id]["notes"]) == 1
    assert folder.exists()
