"""Claims are frozen once, by the first launch; what is not as it was frozen is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polysweep.sweeps.planning.spec_changes import check_claims, compare
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.preregistered import freeze_claims, frozen_claims
from polysweep.sweeps.store.store import Store
from polysweep.trainer.errors import UserError
from tests.support.commands import assert_user_error
from tests.support.made_sweeps import TINY, finish, ids, spec_of

Run = Callable[..., Any]
CLAIM = {"better": {"rho": 0.1}, "than": {"rho": 0.2}, "by": "0.2 points"}


def test_the_first_launch_freezes_them_and_a_later_one_finds_them(tmp_path: Path) -> None:
    store, spec = Store(str(tmp_path)), spec_of(claims=[CLAIM])
    assert frozen_claims(store.files, "tiny") is None
    frozen = freeze_claims(store.files, "tiny", spec.preregistration, 1)
    assert (frozen.claims, frozen.begun) == (spec.preregistration.claims, 1) and frozen.at
    other = spec_of(claims=[{**CLAIM, "by": 0}])
    assert freeze_claims(store.files, "tiny", other.preregistration, 0) == frozen, "the first holds"
    store.write_sweep(spec)
    assert not compare(spec, store).changed


def test_other_claims_and_claims_of_a_sweep_that_was_launched_without_are_refused(tmp_path: Path) -> None:
    store, plain, claiming = Store(str(tmp_path)), spec_of(), spec_of(claims=[CLAIM])
    freeze_claims(store.files, "tiny", plain.preregistration, 0)
    store.write_sweep(plain)
    assert frozen_claims(store.files, "tiny") is None and not compare(plain, store).changed
    with pytest.raises(UserError, match="'tiny' was launched without these, and what is claimed afterwards is expl"):
        compare(claiming, store)
    freeze_claims(store.files, "other", claiming.preregistration, 0)
    for changed in (spec_of(name="other"), spec_of(name="other", claims=[{**CLAIM, "by": 0}])):
        with pytest.raises(UserError, match=r"frozen with its claims since 20.*, and this spec differs in claims"):
            check_claims(changed, store, is_launched=True)


def test_what_the_answers_depend_on_is_frozen_with_them(tmp_path: Path) -> None:
    """A verdict could else be had by dropping cells, candidates or seeds, or by choosing otherwise."""
    store, spec = Store(str(tmp_path)), spec_of(claims=[CLAIM])
    freeze_claims(store.files, "tiny", spec.preregistration, 0)
    store.write_sweep(spec)
    rho = {**TINY["parameters"], "rho": {"values": [0.1, 0.2, 0.3]}}
    for changes, part in (
        ({"seeds": 2}, "seeds: 0 -> 0, 1"), ({"parameters": rho}, "trials: 2"),
        ({"tuned": ["epochs"]}, "tuned: nothing"),
        ({"seeds": 3, "replicate": {"compare": "rho", "looks": [3, 5]}}, "replicate: nothing -> {"),
        ({"metric": {"name": "test/top1", "goal": "minimize"}}, "metric: test/top1 (maximize) -> test/top1 (minimize)"),
    ):  # fmt: skip
        with pytest.raises(UserError) as refused:
            compare(spec_of(claims=[CLAIM], **changes), store)
        assert part in str(refused.value) and "trials that both have are not run again" in str(refused.value)


def test_a_file_that_was_changed_or_is_damaged_is_named(tmp_path: Path) -> None:
    store, spec = Store(str(tmp_path)), spec_of(claims=[CLAIM])
    freeze_claims(store.files, "tiny", spec.preregistration, 0)
    path = tmp_path / "sweeps/tiny/preregistered.json"
    whole = json.loads(path.read_text())
    for content, words in (
        ({**whole, "claims": [{**whole["claims"][0], "by": "0"}]}, "was changed after it was frozen"),
        ({**whole, "at": "1999-01-01 00:00 UTC"}, "was changed after it was frozen"),
        ({**whole, "begun": -5}, "damaged: begun"),
        ({**whole, "claims": [{"better": 1}]}, "damaged: claims.0.better"),
        ({}, "damaged: hash: Field required"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(StoreError, match=words):
            frozen_claims(store.files, "tiny")
    path.write_text("")  # its writer was killed on a file system without links
    with pytest.raises(StoreError, match="damaged"):
        frozen_claims(store.files, "tiny")
    assert freeze_claims(store.files, "tiny", spec.preregistration, 0).at


def test_a_launch_of_trials_that_another_sweep_has_ended_says_so(launch_here: Run, tmp_path: Path) -> None:
    """The claims may have been made with their results in sight."""
    store, spec = Store(str(tmp_path / "store")), spec_of(claims=[CLAIM])
    finish(store, *ids(spec))
    (tmp_path / "tiny.yaml").write_text(spec.text)
    options = ("--store", store.root, "--wandb", "disabled")
    assert launch_here(tmp_path / "tiny.yaml", *options).returncode == 0
    frozen = frozen_claims(store.files, "tiny")
    assert frozen is not None and frozen.begun == 2
    (tmp_path / "tiny.yaml").write_text(spec_of(claims=[{**CLAIM, "by": "0.3 points"}]).text)
    assert_user_error(launch_here(tmp_path / "tiny.yaml", *options), "frozen with its claims since", "claims")
    refused = launch_here(tmp_path / "tiny.yaml", *options, "--extend")
    assert_user_error(refused, "frozen with its claims since", "preregistered.json")
