"""What must hold of every drawn figure: nothing clipped, nothing on top of anything else."""

from __future__ import annotations

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

SMALLEST_TYPE = 6.5  # points
TEXT_WIDTH = 6.75  # inches


def drawn(display):
    """The display's figure after a draw, which is when everything has its place."""
    figure = display.figure()
    FigureCanvasAgg(figure).draw()
    return figure


def panels(figure):
    return [ax for ax in figure.axes if ax.get_visible()]


def tick_labels(ax, axis):
    """The tick labels that are shown: matplotlib keeps some outside of the view."""
    labels = ax.get_xticklabels() if axis == "x" else ax.get_yticklabels()
    low, high = sorted(ax.get_xlim() if axis == "x" else ax.get_ylim())
    slack = 1e-9 * (high - low)
    place = 0 if axis == "x" else 1
    return [
        label
        for label in labels
        if label.get_visible()
        and label.get_text()
        and low - slack <= label.get_position()[place] <= high + slack
    ]


def shown_texts(figure):
    """Every text that is drawn, with each axis's labels only where they are in view."""
    ticks = {t for ax in figure.axes for a in (ax.xaxis, ax.yaxis) for t in a.get_ticklabels()}
    hidden = {t for ax in figure.axes if not ax.get_visible() for t in ax.findobj(Text)}
    texts = {t for t in figure.findobj(Text) if t.get_visible() and t.get_text()}
    visible_ticks = {t for ax in panels(figure) for a in "xy" for t in tick_labels(ax, a)}
    return ((texts - ticks) | visible_ticks) - hidden


def assert_tidy(figure):
    assert figure.get_figwidth() <= TEXT_WIDTH
    for text in shown_texts(figure):
        assert text.get_fontsize() >= SMALLEST_TYPE, text
        box = text.get_window_extent()
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= figure.bbox.x1 + 1, text
        assert box.y1 <= figure.bbox.y1 + 1, text
    boxes = [ax.get_tightbbox() for ax in panels(figure)]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    boxes += [t.get_window_extent() for t in figure.texts if t.get_text()]
    for one, other in combinations(boxes, 2):
        assert not one.padded(-1).overlaps(other.padded(-1))
    for ax in panels(figure):
        for axis in "xy":
            _assert_apart(tick_labels(ax, axis))
        _assert_apart(ax.texts)


def _assert_apart(texts):
    for one, other in combinations(texts, 2):
        assert not one.get_window_extent().overlaps(other.get_window_extent()), (one, other)
