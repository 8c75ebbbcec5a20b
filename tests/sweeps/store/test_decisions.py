"""Decisions in a Store: each is kept once, and damage is named with its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from polysweep.sweeps.spec.decisions import OPEN, Choice, Compared, Decisions, Look, by_key
from polysweep.sweeps.store.decisions import DecisionFiles
from polysweep.sweeps.store.files import StoreError
from polysweep.sweeps.store.store import Store
from tests.support.replicated_worlds import world_spec

CHOICE = Choice("0123456789abcdef", "f" * 16, {"rho": 0.1}, "lr=0.1", 0.9, 3, "2026-11-29 20:15 UTC")
PAIR = ("0123456789abcdef", "fedcba9876543210")
COMPARED = Compared(PAIR, "polyak", "constant", "rho=0.1", 3, 0.1, None, 0.2, OPEN)
LOOK = Look(1, 3, 0.001, {"looks": [3, 5]}, 1, (COMPARED,), "2026-11-29 20:15 UTC")


def kept(folder: Path) -> DecisionFiles:
    decisions = DecisionFiles(Store(str(folder)).files)
    for one in (CHOICE, LOOK, replace(LOOK, number=2, seeds=5)):
        decisions.keep("made", one)
    return decisions


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    expected = Decisions({CHOICE.cell: CHOICE}, (LOOK, replace(LOOK, number=2, seeds=5)))
    assert kept(tmp_path).read("made") == expected
    assert DecisionFiles(Store(str(tmp_path)).files).read("nobody") == Decisions()


def test_a_decision_is_made_once(tmp_path: Path) -> None:
    decisions = kept(tmp_path)
    decisions.keep("made", replace(CHOICE, chosen="0" * 16))
    decisions.keep("made", replace(LOOK, seeds=99))
    assert decisions.read("made").choices[CHOICE.cell] == CHOICE and decisions.read("made").looks[0] == LOOK


def test_an_empty_file_of_a_writer_that_was_killed_is_written_again(tmp_path: Path) -> None:
    decisions = kept(tmp_path)
    place = tmp_path / "sweeps/made/choices" / f"{CHOICE.cell}.json"
    place.write_bytes(b"")
    assert decisions.read("made").choices == {}
    decisions.keep("made", CHOICE)
    assert decisions.read("made").choices == {CHOICE.cell: CHOICE}


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("choices/0123456789abcdef.json", b"{", "not JSON"),
        ("choices/0123456789abcdef.json", b"[]", "damaged"),
        ("looks/01.json", b'{"number": 1}', "looks/01.json: damaged: seeds: Field required"),
        ("looks/02.json", b'{"number": "two"}', "looks/02.json: damaged: number"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, content: bytes, words: str) -> None:
    decisions = kept(tmp_path)
    (tmp_path / "sweeps/made" / file).write_bytes(content)
    with pytest.raises(StoreError) as caught:
        decisions.read("made")
    assert words in str(caught.value) and file in str(caught.value)


def test_a_choice_of_another_cell_is_damage(tmp_path: Path) -> None:
    decisions = kept(tmp_path)
    folder = tmp_path / "sweeps/made/choices"
    (folder / f"{CHOICE.cell}.json").rename(folder / f"{PAIR[1]}.json")
    with pytest.raises(StoreError, match=f"{PAIR[1]}.json: damaged: it is the choice of the cell {CHOICE.cell}"):
        decisions.read("made")


def test_a_choice_of_no_trial_is_damage(tmp_path: Path) -> None:
    store, spec = Store(str(tmp_path)), world_spec()
    cell = next(iter(by_key(spec.tuning_trials)))
    store.search.keep_decision("world", replace(CHOICE, cell=cell))
    with pytest.raises(StoreError, match=f"{cell}.json: damaged: 'ffffffffffffffff' is no trial of its cell"):
        store.search.as_decided(spec)


def test_how_many_trials_had_begun_is_kept_once(tmp_path: Path) -> None:
    decisions = kept(tmp_path)
    assert decisions.read("made").begun == 0
    decisions.begin("made", 7)
    decisions.begin("made", 12)
    assert decisions.read("made").begun == 7
    (tmp_path / "sweeps/made/looks/begun.json").write_bytes(b'{"begun": -1}')
    with pytest.raises(StoreError, match=r"begun\.json: damaged: begun"):
        decisions.read("made")


def test_a_look_that_is_missing_is_named(tmp_path: Path) -> None:
    decisions = kept(tmp_path)
    (tmp_path / "sweeps/made/looks/01.json").unlink()
    with pytest.raises(StoreError, match=r"looks: damaged: look 1 is missing; restore 01\.json"):
        decisions.read("made")


def test_stray_files_are_no_decisions(tmp_path: Path) -> None:
    decisions = kept(tmp_path)
    for stray in ("choices/.DS_Store", "looks/note.txt", "looks/1.json"):
        (tmp_path / "sweeps/made" / stray).write_bytes(b"\0")
    assert len(decisions.read("made").looks) == 2
