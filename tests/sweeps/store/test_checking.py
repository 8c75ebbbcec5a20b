"""Untrusted bytes of a Store: what is damaged is named, what is newer is refused, and nothing waits for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from polysweep.sweeps.spec.spec import SweepSpec
from polysweep.sweeps.store.checking import (
    NewerFormatError,
    checked_beat,
    checked_point,
    checked_record,
    listed_trials,
    parse_json,
)
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.store import Store
from tests.support.inprocess import polysweep
from tests.support.made import by_lr, sweep
from tests.support.made_sweeps import finish, ids, invoke, spec_of


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


def newer_record(store: Store, spec: SweepSpec) -> None:
    path = f"trials/{ids(spec)[0]}/record.json"
    store.files.write(path, json.dumps({"format": 99, "outcome": {"new": "words"}}).encode())


def newer_sweep(store: Store, _: SweepSpec) -> None:
    store.files.write("sweeps/tiny/sweep-0001.json", b'{"format": 3, "trials": []}')


@pytest.mark.parametrize("newer", [newer_record, newer_sweep])
def test_a_store_of_a_newer_version_is_refused_and_left_alone(
    tmp_path: Path, newer: Callable[[Store, SweepSpec], None]
) -> None:
    store, spec = Store(str(tmp_path / "store")), spec_of()
    store.write_sweep(spec)
    finish(store, *ids(spec))
    newer(store, spec)
    before = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    (tmp_path / "tiny.yaml").write_text(spec.text)
    place = ("--store", str(tmp_path / "store"))
    for command in (
        ("status", "tiny"),
        ("table", "tiny", "--cache", str(tmp_path / "cache")),
        ("plan", str(tmp_path / "tiny.yaml")),
        ("launch", str(tmp_path / "tiny.yaml"), "--retry-failed"),
        ("launch", str(tmp_path / "tiny.yaml")),
    ):
        code, output = invoke(*command, *place)
        assert code == 2 and "this version of polysweep reads up to" in output, output
    after = {path: path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()}
    assert after == before
