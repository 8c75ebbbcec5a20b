"""The figure over all optimizers."""

from __future__ import annotations

from polysweep.analysis.figures.files import NamedFigure


def test_sam_stands_beside_usam_beside_sgd(drawn: dict[str, NamedFigure]) -> None:
    found = [one for name, one in drawn.items() if name.startswith("optimizers")]
    assert [one.name for one in found] == ["optimizers-weight_decay-0", "optimizers-weight_decay-0.0005"]
    panels = found[0].figure.axes
    assert [ax.get_title() for ax in panels] == ["constant", "polyak"]
    for ax in panels:
        lines = {line.get_label(): line for line in ax.get_lines()}
        assert {"sgd", "usam", "sam"} <= set(lines)
        assert len(set(lines["sgd"].get_ydata())) == 1, "SGD has no radius: a level"
        assert lines["sam"].get_ydata()[0] > lines["usam"].get_ydata()[0] > lines["sgd"].get_ydata()[0]
    colors = [{line.get_label(): line.get_color() for line in ax.get_lines()}["sam"] for ax in panels]
    assert colors[0] == colors[1] and "multiple of the gradient" in found[0].caption
