"""What a probe measures: its columns and its key."""

from __future__ import annotations

import pytest

from polysweep.trainer.components.corruptions import ALL
from polysweep.trainer.errors import UserError
from polysweep.trainer.probe.settings import CorruptionSettings, CurvatureSettings


def test_the_key_follows_from_the_settings_alone_and_stays() -> None:
    """A Store is read by it: another key would measure everything again."""
    assert CurvatureSettings().key == "curvature-d6406ac914a5"
    assert CorruptionSettings.of(["noise-1"], None).key == "corruptions-e2f7f7868886"
    assert CurvatureSettings(radii=(0.05, 0.1, 0.2)).key == CurvatureSettings().key != CurvatureSettings(images=9).key


def test_corruptions_are_in_order_each_once_whatever_is_asked_for() -> None:
    asked = CorruptionSettings.of(["blur-2", "noise", "blur-2", "noise-3"], "float64")
    assert asked.corruptions == ("noise-1", "noise-2", "noise-3", "noise-4", "noise-5", "blur-2")
    assert asked.columns[-1] == "test/blur-2" and asked.precision == "float64"
    assert CorruptionSettings.of(["all"], None).columns == [one.metric for one in ALL]


def test_columns_name_what_is_measured() -> None:
    columns = CurvatureSettings(eigenvalues=2, radii=(0.5,)).columns
    assert [name.removeprefix("curvature/") for name in columns] == [
        "loss", "grad_norm", "eigenvalue-1", "eigenvalue-2", "eigenvalue_error", "trace", "trace_se", "sam-0.5",
    ]  # fmt: skip


def test_a_wrong_setting_is_one_line_with_its_option() -> None:
    with pytest.raises(UserError, match=r"--radii: must increase, but 0\.1 comes after 0\.2 \(got"):
        CurvatureSettings.parse({"radii": (0.2, 0.1), "images": None})
