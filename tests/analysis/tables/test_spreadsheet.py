"""Frames as CSV for a spreadsheet."""

from __future__ import annotations

import io

import pandas as pd

from polysweep.analysis.tables.spreadsheet import to_csv


def test_the_index_is_left_out_and_columns_of_one_name_stay_two() -> None:
    frame = pd.DataFrame([["-1", "-x"], ["@y", None]], columns=["a", "a"], index=[7, 8])
    assert to_csv(frame).splitlines() == ["a,a", "-1,'-x", "'@y,"]


def test_the_frame_itself_is_not_changed() -> None:
    frame = pd.DataFrame({"=name": ["=1+1", "b"]})
    assert pd.read_csv(io.StringIO(to_csv(frame)))["'=name"].tolist() == ["'=1+1", "b"]
    assert frame.columns.tolist() == ["=name"] and frame["=name"].tolist() == ["=1+1", "b"]
