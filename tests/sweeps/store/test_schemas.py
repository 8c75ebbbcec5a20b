"""The types of a record's fields: a whole record is itself, a wrong field is damage that is named."""

from __future__ import annotations

from typing import Any

import pytest

from polysweep.sweeps.store.checking import NewerFormatError, checked_record
from polysweep.sweeps.store.files import StoreError

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
