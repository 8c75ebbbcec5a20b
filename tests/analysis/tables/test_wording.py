"""Columns, fields and values in words, and text that is drawn as it is."""

from __future__ import annotations

from polysweep.analysis.data.frames import RunSet
from polysweep.analysis.figures.files import NamedFigure, image
from polysweep.analysis.figures.gallery import figures
from polysweep.analysis.tables.wording import axis_label, drawable, in_unicode, shortened, value_text, wrapped
from tests.support.drawn import with_field


def test_axes_say_in_words_what_they_show(drawn: dict[str, NamedFigure]) -> None:
    assert [axis_label(name) for name in ("test/top1", "val/top5", "train/loss", "mine/acc_$")] == [
        "test accuracy, top-1 (%)", "validation accuracy, top-5 (%)", "training loss", r"mine/acc_\$",
    ]  # fmt: skip
    assert in_unicode(axis_label("distance/relative")) == "‖x - x*‖² / ‖x⁰ - x*‖²"
    found = {name: one.figure.axes[0] for name, one in drawn.items()}
    ax = found["robustness-weight_decay-0-optimizer-sam"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (r"radius $\rho$", "test accuracy, top-1 (%)")
    stability = found["stability-lr-scheduler-constant-weight_decay-0-optimizer-sam"]
    assert stability.get_xlabel() == r"step size $\gamma$"
    assert found["gamma-weight_decay-0-optimizer-sgd"].get_ylabel() == r"step size $\gamma$"


def test_titles_break_between_words_and_only_words_without_room_within() -> None:
    text = (
        "made, weight decay 0: best epoch, mean and band of n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3, selected on test"
    )
    for longest in (12, 20, 36):
        lines = wrapped(text, longest).split("\n")
        assert " ".join(lines) == text and all(len(line) <= longest for line in lines)
    assert wrapped("a_rather_long-name.of/one:word 0.0005", 12).split("\n") == [
        "a_rather_",
        "long-name.",
        "of/one:word",
        "0.0005",
    ]
    assert all(len(line) <= 12 for line in wrapped("x" * 30 + " a_rather_long-name.of/one:word", 12).split("\n"))
    assert r"\$" in wrapped(drawable("x" * 11 + "$" + "y" * 11), 12), "an escape stays whole"


def test_a_value_of_a_megabyte_is_drawn_by_its_ends(pulled: RunSet) -> None:
    selection = with_field(pulled, "scheduler", lambda name: "y" * 1_000_000 if name == "polyak" else name)
    one = next(iter(figures(selection)))
    image(one.figure, "svg")
    assert max(len(text.get_text()) for text in one.figure.legends[0].get_texts()) < 100


def test_long_values_that_differ_in_their_middle_stay_two() -> None:
    one, other = ("a" * 100 + middle + "b" * 100 for middle in "xy")
    assert shortened(one) != shortened(other) and len(shortened(one)) <= 80
    assert drawable("$a$ \x1b") == r"\$a\$ \x1b" and drawable("_x") == " _x"
    assert [value_text(value) for value in (0.0, 5e-4, 1.0, 0.1 + 0.2, None)] == [
        "0",
        "0.0005",
        "1",
        "0.30000000000000004",
        "-",
    ]
