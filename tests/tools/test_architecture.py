"""The picture of the rooms is that of the imports."""

from __future__ import annotations

import pytest

from tools import architecture


def test_the_picture_is_that_of_the_code() -> None:
    drawn = architecture.draw()
    assert architecture.PICTURE.read_text(encoding="utf-8") == drawn, "run `make architecture`"


def test_an_arrow_is_left_out_if_a_longer_path_leads_there() -> None:
    imported = {"a": {"b", "c"}, "b": {"c"}, "c": set[str]()}
    assert architecture.without_shortcuts(imported) == [("a", "b"), ("b", "c")]


def test_arrows_in_one_lane_do_not_overlap() -> None:
    lane = architecture.lanes([(0, 1), (1, 2), (0, 2), (2, 3)])
    assert lane == {(0, 1): 0, (1, 2): 0, (2, 3): 0, (0, 2): 1}


def test_a_package_is_a_room_unless_others_stand_between_its_modules() -> None:
    modules = ["a.top", "a.one.x", "a.one.y", "a.two.x", "a.three.x", "a.two.y"]
    assert architecture.rooms(modules) == ["a.top", "a.one", "a.two.x", "a.three", "a.two.y"]
    assert architecture.room_of("polysweep.a.one.y", modules) == "a.one"


def test_a_file_without_a_place_in_the_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"trainer.newcomer is in no layer"):
        architecture.room_of("polysweep.trainer.newcomer", ["trainer.train"])
