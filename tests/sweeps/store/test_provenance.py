"""What besides its config a trial's numbers may depend on: the commit, the versions, the device."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from polysweep.sweeps.store.provenance import THIS_VERSION, commit, differences, image, source_changes, version_refusal


def test_the_commit_is_the_jobs_or_else_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "image.json"
    monkeypatch.setenv("POLYSWEEP_IMAGE_INFO", str(info))
    assert image() is None, "a file that is not there"
    info.write_text("[1]")
    assert image() is None, "a file that holds something else"
    info.write_text(json.dumps({"commit": "c0ffee", "dirty": False, "target": "cpu"}))
    assert image() == {"commit": "c0ffee", "dirty": False, "target": "cpu"} and commit() == "c0ffee"
    info.write_text(json.dumps({"commit": "c0ffee", "dirty": True}))
    assert commit() == "c0ffee+"
    monkeypatch.setenv("POLYSWEEP_COMMIT", "beef")
    assert commit() == "beef"


def test_a_worker_of_another_version_is_refused_with_both_named() -> None:
    assert version_refusal(dict(THIS_VERSION)) == ""
    here = f"polysweep {THIS_VERSION['polysweep']} with NUMERICS {THIS_VERSION['numerics']}"
    assert version_refusal({"polysweep": "0.0", "numerics": 99}) == (
        f"the worker on {platform.node()} runs {here}, the driver polysweep 0.0 with NUMERICS 99: "
        "install the same on both"
    )


def test_another_device_or_number_of_threads_is_named_and_nothing_else() -> None:
    old = {"device_model": "a CPU", "threads": 1, "commit": "c0ffee"}
    assert differences(old, {**old, "commit": "beef"}) == ""
    assert differences(old, {**old, "device_model": "a GPU", "threads": 2}) == (
        "device_model 'a CPU' before, 'a GPU' now, threads 1 before, 2 now"
    )
    assert differences({}, old) == "", "an older record does not say"


def test_a_part_with_another_source_is_named_with_both_hashes() -> None:
    old = {"sources": {"model": "ab", "task": "cd"}}
    assert list(source_changes(old, {"sources": {"model": "ef", "task": "cd"}})) == [("model", "ab", "ef")]
    assert list(source_changes({}, old)) == [], "an older record does not say"
    assert list(source_changes(old, {})) == [], "what has no source has not changed"
