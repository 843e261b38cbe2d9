"""Text that fits, looks that differ, and legends no wider than their figure."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.lines import Line2D
from report_samples import HOSTILE

from divtok.report.figure_style import fold, legend_of, look, new_figure, pieces, text_width
from divtok.report.text import plot_text
from divtok.screen import visible


def test_series_differ_in_colour_and_marker():
    looks = [look(i) for i in range(49)]
    assert len(set(looks)) == 49
    assert len({colour for colour, _ in looks[:7]}) == 7
    assert len({marker for _, marker in looks[:7]}) == 7


def test_lines_end_between_words_and_after_slashes():
    wide = text_width("two/three", 7) + 0.001
    assert fold("one two/three", wide) == "one two/\nthree"
    assert fold("one two/three", 10) == "one two/three"
    assert fold("ab", text_width("a", 7) * 1.1) == "a\nb"
    assert fold("", 1) == ""


def test_a_folded_formula_stays_text():
    assert fold("$x$ $y$", text_width("$x$ ", 7)) == "\\$x\\$\n\\$y\\$"


@pytest.mark.filterwarnings("ignore:Glyph")
@given(text=st.text(max_size=40) | st.sampled_from(HOSTILE), inches=st.floats(0.3, 3))
def test_folding_loses_nothing_and_fits(text, inches):
    assert "".join(pieces(text)) == visible(text)
    lines = fold(text, inches).split("\n")
    together = "".join(lines).replace(" ", "")
    assert together == plot_text(text).replace(" ", "")
    for line in lines:
        shown = line.replace("\\$", "$")
        assert len(shown) <= 1 or text_width(shown, 7) <= inches


def legend(names, marks=(), *, width=6.75):
    figure = new_figure("t", width=width, height=2)
    handles = {name: Line2D([], []) for name in (*names, *marks)}
    height = legend_of(
        figure, {name: handles[name] for name in names}, {name: handles[name] for name in marks}
    )
    return figure.legends[0], height


def test_a_legend_has_even_rows_and_marks_below():
    names = [f"divtok/tiny-{i}m on arith-contest-{kind}" for i in range(3) for kind in "ab"]
    # Three columns fit on a page: each holds both benchmarks of a generator, the first the mark.
    found, _ = legend(names, ["operating point"])
    texts = [t.get_text() for t in found.get_texts()]
    assert texts == [*names[:2], "operating point", *names[2:]]


def test_short_names_stand_in_one_row():
    found, height = legend(["a", "b", "c"], ["mark"])
    assert [t.get_text() for t in found.get_texts()] == ["a", "b", "c", "mark"]
    assert height < 0.25


def test_without_entries_there_is_no_legend():
    figure = new_figure("t", width=3.4, height=2)
    assert legend_of(figure, {}) == 0
    assert not figure.legends


@pytest.mark.parametrize("width", [3.4, 6.75])
@pytest.mark.parametrize("length", [1, 33, 90])
def test_a_legend_is_never_wider_than_its_figure(width, length):
    found, height = legend([str(i) + "x" * length for i in range(5)], width=width)
    box = found.get_window_extent()
    assert box.width <= found.figure.bbox.width
    assert height == pytest.approx(box.height / found.figure.dpi)


def test_names_with_an_underscore_are_in_the_legend():
    found, _ = legend(["_a", "b"])
    assert [t.get_text().strip() for t in found.get_texts()] == ["_a", "b"]


def test_new_displays_leave_pyplot_and_settings_alone(tmp_path):
    code = """
import sys
from pathlib import Path
from divtok.report.bars import BarsDisplay, BarSeries
from divtok.report.figures import save_figure
from divtok.report.maps import HeatMap, MapsDisplay
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
assert "matplotlib" not in sys.modules, "imported too early"
import matplotlib
before = matplotlib.rcParams.copy()
panel = Panel("p", "x", "y", (LineSeries("l", (0.0, 1.0), (1.0, 2.0), 0),))
for number, display in enumerate((
    PanelsDisplay("f", "t", ((panel,),)),
    MapsDisplay("f", "t", "r", "c", ("a",), ("b",), (HeatMap("m", ((1.0,),), "{:.1f}", "%"),)),
    BarsDisplay("f", "t", "y", ("g",), (BarSeries("s", (1.0,)),)),
)):
    save_figure(display, Path(sys.argv[1]) / str(number))
assert "matplotlib.pyplot" not in sys.modules
assert matplotlib.rcParams.copy() == before
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
