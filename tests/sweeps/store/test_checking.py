"""Untrusted bytes of a Store: what is damaged is named, what is newer is refused, and nothing waits for ever."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from polysweep.sweeps.store.checking import (
    NewerFormatError,
    checked_beat,
    checked_point,
    checked_record,
    listed_trials,
    parse_json,
)
from polysweep.sweeps.store.files import StoreError, UnreadableError
from polysweep.sweeps.store.history_file import history_table
from polysweep.sweeps.store.store import Store
from polysweep.trainer.history import HISTORY_COLUMNS
from tests.support.inprocess import polysweep
from tests.support.made import by_lr, sweep

RECORD: dict[str, Any] = {
    "format": 1, "trial_id": "t", "outcome": "diverged", "width": 9, "epoch": 3, "epochs": 3, "started": 1.5,
    "ended": None, "seconds": 3, "error": None, "errors": ["Traceback"],
    "diverged": {"epoch": 1, "step": 4}, "stalled": False, "wandb": "online", "failures": 0,
    "extremes": {"test/top1": [0, 0.5]}, "signature": "00", "claim": 1,
    "sessions": [{"from_epoch": 0, "started": 1, "process": "host (pid 1)", "provenance": {}}, {}], "notes": ["note"],
    "provenance": {"numerics": 1, "commit": None, "versions": {"torch": "2"}, "image": {"dirty": True}},
    "constants": {"L": 1.0},
    "added by a later version": [1],
}  # fmt: skip
ROWS = [{**dict.fromkeys(HISTORY_COLUMNS, 0.5), "epoch": e, "step": e, "partial": False} for e in (1, 2, 3)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"), (b" \n", "it is empty"), (b"null", "it is null"), (b"{", "not JSON: EOF while parsing"),
        (b"[" * 100_000, "not JSON: recursion limit"), (b'{"a":' * 100_000, "not JSON: recursion limit"),
        (b"[NaN]", "not JSON: expected value"), (b"9" * 10_000, "not JSON: number out of range"),
        (b'"\\ud800"', "not JSON"), (b"\xff\xfe", "not JSON"), (b"{} {}", "not JSON: trailing characters"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(StoreError, match=f"^a/b.json: damaged, {reason}"):
        parse_json(content, "a/b.json")


def test_a_whole_record_is_itself() -> None:
    assert checked_record(RECORD, "t", "r.json") is RECORD
    few = {"format": 1, "outcome": "running", "width": 1, "epoch": 0}
    assert checked_record(few, "t", "r.json") is few, "of an older version, which wrote fewer fields"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"outcome": "finish"}, "outcome: "), ({"width": 0}, "width: "), ({"width": True}, "width: "),
        ({"width": 10**6}, "width: Input should be less than or equal to 4096"), ({"epoch": -1}, "epoch: "),
        ({"epoch": 2**63}, "epoch: "), ({"epochs": "3"}, "epochs: "), ({"started": 1e300}, "started: "),
        ({"ended": "now"}, "ended: "), ({"seconds": float("inf")}, "seconds: "), ({"seconds": 10**400}, "seconds: "),
        ({"error": ["x"]}, "error: "), ({"errors": "x"}, "errors: "), ({"diverged": [1, 2]}, "diverged: "),
        ({"diverged": {"step": "x"}}, "diverged.step: "), ({"stalled": 1}, "stalled: "), ({"wandb": 1}, "wandb: "),
        ({"extremes": [1]}, "extremes: "), ({"extremes": {"a": [1]}}, "extremes.a: "),
        ({"extremes": {"a": [1, "x"]}}, "extremes.a.1: "), ({"extremes": {"a": [1, None]}}, "extremes.a.1: "),
        ({"sessions": {}}, "sessions: "), ({"sessions": [3]}, "sessions.0: "),
        ({"sessions": [{}, {"started": "x"}]}, "sessions.1.started: "),
        ({"sessions": [{"from_epoch": []}]}, "sessions.0.from_epoch: "),
        ({"sessions": [{"provenance": {"device_model": 3}}]}, "sessions.0.provenance.device_model: "),
        ({"notes": "x"}, "notes: "), ({"notes": [None]}, "notes.0: "), ({"provenance": []}, "provenance: "),
        ({"provenance": {"versions": ["x"]}}, "provenance.versions: "),
        ({"provenance": {"versions": {"a": 1}}}, "provenance.versions.a: "),
        ({"provenance": {"image": {"a": [1]}}}, "provenance.image.a"), ({"constants": {"L": "x"}}, "constants.L"),
        ({"trial_id": "other"}, "belongs to trial 'other'"), ({"format": 0}, "format 0; expected a format up to 2"),
        ({"format": True}, "format True; expected a format up to 2"),
        ({"format": "1"}, "format '1'; expected a format up to 2"),
    ],
)  # fmt: skip
def test_a_field_of_a_wrong_type_is_damage_that_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(StoreError) as caught:
        checked_record({**RECORD, **change}, "t", "r.json")
    assert str(caught.value).startswith(f"r.json: damaged: {reason}") and len(str(caught.value)) < 300
    assert not isinstance(caught.value, NewerFormatError)


@pytest.mark.parametrize("key", ["format", "outcome", "width", "epoch"])
def test_a_field_that_is_missing_is_damage(key: str) -> None:
    with pytest.raises(StoreError, match=r"r\.json: damaged: .*(no )?" + key):
        checked_record({k: v for k, v in RECORD.items() if k != key}, "t", "r.json")


@pytest.mark.parametrize("format_", [3, 99, 10**30])
def test_a_newer_format_is_no_damage(tmp_path: Path, format_: int) -> None:
    message = (
        r"has format (3|99|1000\d*|a whole number .*), this version of polysweep reads up to 2: install a newer one"
    )
    for check in (lambda found: checked_record(found, "t", "p"), lambda found: listed_trials(found, "p")):
        with pytest.raises(NewerFormatError, match=message):
            check({"format": format_, "anything": "else"})
    store = Store(str(tmp_path))
    store.files.write("trials/t/record.json", json.dumps({"format": format_}).encode())
    for call in (lambda: store.record("t"), lambda: list(store.records(["t"])), lambda: store.state("t")):
        with pytest.raises(NewerFormatError, match=message):
            call()


def _history(rows: list[dict[str, Any]], **columns: Any) -> bytes:
    table = pa.table({**{name: [row[name] for row in rows] for name in rows[0]}, **columns})
    sink = pa.BufferOutputStream()
    parquet.write_table(table.drop_columns([name for name, values in columns.items() if values is None]), sink)
    return bytes(sink.getvalue())


def _without(name: str) -> bytes:
    return _history([{key: value for key, value in row.items() if key != name} for row in ROWS])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"PAR", ""), (b"PAR1" * 100, ""), (_without("gamma/mean"), "no column gamma/mean"),
        (_history(ROWS, **{"test/loss": ["a", "b", "c"]}), "column 'test/loss' is of string, expected double"),
        (_history(ROWS, **{"test/loss": [[1.0]] * 3}), "column 'test/loss' is of list"),
        (_history(ROWS, partial=["x"] * 3), "column 'partial' is of string, expected bool"),
        (_history(ROWS, epoch=[1.0, 2.0, 3.0]), "column 'epoch' is of double, expected int64"),
        (_history(ROWS, epoch=[1, 3, 2]), "its epochs are not 1 to 3"), (_history(ROWS, epoch=[0, 1, 2]), "its epochs"),
        (_history(ROWS, epoch=pa.array([1, None, 3], pa.int64())), "its epochs are not 1 to 3"),
    ],
)  # fmt: skip
def test_what_is_no_history_is_named(content: bytes, reason: str) -> None:
    with pytest.raises(StoreError, match=f"^h.parquet: damaged: {reason}"):
        history_table(content, "h.parquet")


def test_every_flipped_bit_of_a_history_is_damage_or_leaves_its_numbers(tmp_path: Path) -> None:
    """Pages have checksums; what is between them is either found out or says nothing of the numbers."""
    store = Store(str(tmp_path))
    store.write_history("t", ROWS)
    content = (tmp_path / "trials/t/history.parquet").read_bytes()
    whole = history_table(content, "h").to_pylist()
    found = 0
    for at in range(0, len(content), 7):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        try:
            assert history_table(bytes(flipped), "h").to_pylist() == whole
        except StoreError:
            found += 1
    assert found > 100


def test_lists_points_and_claims_of_other_types_are_damage() -> None:
    assert listed_trials({"format": 1, "trials": [{"trial_id": "a", "cell": {"rho": 0.1}, "gone": True}]}, "p")
    for wrong in ({"format": 1}, {"format": 1, "trials": {}}, {"format": 1, "trials": [1]}, [], 3):
        with pytest.raises(StoreError, match=r"^p: damaged"):
            listed_trials(wrong, "p")
    for wrong in ([], {}, {"point": [], "raw": {}}, {"point": {"variant": "0", "values": {}}, "raw": {}}):
        with pytest.raises(StoreError, match=r"^p: damaged"):
            checked_point(wrong, "p")
    for content in (
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"process": {}, "released": false}',
        b'{"process": 3, "released": 1}',
    ):
        assert checked_beat(content) is None


# Files that are no files.


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *(("record.json", make) for make in (_fifo, _loop, _device, Path.mkdir, _terabyte)),
        ("history.parquet", _fifo), ("history.parquet", _loop), ("claim-1.json", _fifo),
    ],
)  # fmt: skip
def test_what_is_no_plain_file_is_one_damaged_trial(tmp_path: Path, make: Callable[[Path], None], name: str) -> None:
    runs = sweep(tmp_path, by_lr).runs
    victim = runs["trial_id"].iloc[0]
    path = tmp_path / "trials" / victim / name
    path.unlink(missing_ok=True)
    make(path)
    store = Store(str(tmp_path))
    with pytest.raises(UnreadableError, match=f"{name}: cannot be read: "):
        store.files.read(f"trials/{victim}/{name}")
    code, out, err = polysweep("status", "made", "--store", tmp_path, "--json")
    outcomes = {one["trial_id"]: one["outcome"] for one in json.loads(out)["trials"]}
    assert code == 0 and list(outcomes.values()).count("finished") >= len(outcomes) - 1
    code, out, err = polysweep("table", "made", "--store", tmp_path, "--cache", tmp_path / "cache")
    assert code == 0 and "polyak" in out
    if name != "claim-1.json":  # of a trial that has ended nobody asks who ran it
        assert f"{victim} counts as failed: {path}: cannot be read: " in err


def test_stray_files_are_nobodys_trials(tmp_path: Path) -> None:
    sweep(tmp_path, by_lr)
    trial = next((tmp_path / "trials").iterdir())
    for folder in ("trials", "sweeps", "sweeps/made", f"trials/{trial.name}"):
        (tmp_path / folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    for command in ("status", "table"):
        code, out, err = polysweep(command, "made", "--store", tmp_path)
        assert (code, "error" in err) == (0, False) and "polyak" in out
    assert polysweep("logs", "made", trial.name, "--store", tmp_path)[0] == 0
    assert polysweep("status", "nothing", "--store", tmp_path)[2].endswith("it has: made\n")


def test_a_file_in_the_place_of_a_trials_folder_is_that_trial_only(tmp_path: Path) -> None:
    victim = sweep(tmp_path, by_lr).runs["trial_id"].iloc[0]
    for path in (tmp_path / "trials" / victim).iterdir():
        path.unlink()
    (tmp_path / "trials" / victim).rmdir()
    (tmp_path / "trials" / victim).write_bytes(b"")
    code, out, _ = polysweep("status", "made", "--store", tmp_path)
    assert code == 0 and f"failed: {victim}: " in out and "Not a directory" in out


def test_status_names_a_damaged_trial_with_its_file(tmp_path: Path) -> None:
    victim = sweep(tmp_path, by_lr).runs["trial_id"].iloc[0]
    record = tmp_path / "trials" / victim / "record.json"
    record.write_text("[" * 100_000)
    code, out, _ = polysweep("status", "made", "--store", tmp_path)
    assert code == 0 and f"failed: {victim}: {record}: damaged, not JSON: recursion limit exceeded" in out
