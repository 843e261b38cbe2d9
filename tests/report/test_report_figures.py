"""Figures: what is drawn is what is kept, and nothing global changes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from report_samples import HOSTILE, group, theta_fit

from divtok.evaluate.curves import count_curve, reliability_curve, reliability_of
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.report.figures import (
    CountDisplay,
    MadeOf,
    ReliabilityDisplay,
    ReliabilityPanel,
    ThetaDisplay,
    save_figure,
)


def refuse(constant):
    raise AssertionError(f"{constant} in JSON")


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


def reliability(title="title"):
    curves = [reliability_of(group(), c) for c in group().columns]
    return ReliabilityDisplay.of(title, curves)


def test_the_reliability_line_is_accuracy_against_mean_confidence(ax):
    confidence = [0.1] * 4 + [0.85] * 4
    correct = [False, False, False, True, True, True, True, False]
    curve = reliability_curve("est", confidence, correct, Protocol(draws=1))
    ReliabilityPanel("est", curve).plot(ax)
    line = next(x for x in ax.lines if x.get_label().startswith("accuracy"))
    np.testing.assert_allclose(line.get_xydata(), [[10, 25], [85, 75]])
    heights = [bar.get_height() for bar in ax.patches]
    assert len(heights) == 20
    assert (heights[2], heights[17]) == (50, 50)
    assert sum(heights) == 100
    diagonal = next(x for x in ax.lines if x.get_label() == "perfect calibration")
    np.testing.assert_allclose(diagonal.get_xydata(), [[0, 0], [100, 100]])
    assert ax.get_title() == "est\nECE 12.5 % balanced"


def test_a_panel_without_values_says_why(ax):
    curve = reliability_of(group(), group().columns[1])
    ReliabilityPanel("length", curve).plot(ax)
    assert [t.get_text() for t in ax.texts] == ["ranking only"]
    assert not ax.lines


def test_reliability_has_one_labelled_panel_an_estimator():
    figure = reliability().figure()
    titles = [a.get_title() for a in figure.axes if a.get_visible()]
    assert [t.splitlines()[0] for t in titles] == ["DTC lin", "Length", "broken"]
    assert figure.axes[0].get_xlabel() == "mean confidence (%)"
    assert len(figure.legends) == 1
    assert not any(a.get_legend() for a in figure.axes)


def test_count_points_carry_numbers_and_intervals(ax):
    points = count_curve(group())
    CountDisplay("t", points).plot(ax)
    known = [p for p in points if p.accuracy is not None]
    drawn = ax.lines[0].get_xydata()
    np.testing.assert_allclose(drawn, [[p.count, 100 * p.accuracy] for p in known])
    names = [t.get_text() for t in ax.get_xticklabels()]
    assert names == [*map(str, range(11)), "≥11"]
    segments = ax.collections[0].get_segments()
    np.testing.assert_allclose(
        [s[:, 1] for s in segments], [[100 * p.low, 100 * p.high] for p in known]
    )


def test_the_numbers_behind_each_count_are_shown():
    points = count_curve(group())
    figure = CountDisplay("t", points).figure()
    shown = [t.get_text() for t in figure.axes[0].texts]
    assert shown == [str(p.n) for p in points]


def test_the_chosen_theta_is_marked(ax):
    ThetaDisplay("t", theta_fit()).plot(ax)
    labels = [line.get_label() for line in ax.lines]
    assert labels[2] == "chosen theta: 0.5 bits, on 100 responses"
    assert list(ax.lines[2].get_xdata()) == [0.5, 0.5]
    (shade,) = [p for p in ax.patches if "interval" in p.get_label()]
    assert shade.get_label() == "95 % interval of the choice: 0.4 to 0.6"
    assert shade.get_extents().transformed(ax.transData.inverted()).intervalx == pytest.approx(
        [0.4, 0.6], abs=0.01
    )
    assert ax.lines[0].get_ydata()[0] == pytest.approx(20.0)


def test_a_theta_without_an_interval_has_no_shade(ax):
    ThetaDisplay("t", replace(theta_fit(), interval=None)).plot(ax)
    assert not [p for p in ax.patches if "interval" in p.get_label()]


@pytest.mark.parametrize(
    "display",
    [
        reliability(),
        CountDisplay("t", count_curve(group())),
        ThetaDisplay("t", theta_fit()),
    ],
    ids=["reliability", "count", "theta"],
)
def test_saved_figures_have_their_numbers_beside_them(display, tmp_path):
    written = save_figure(display, tmp_path / "figures" / "v1.5", formats=("png", "svg", "pdf"))
    assert [p.name for p in written] == ["v1.5.png", "v1.5.svg", "v1.5.pdf", "v1.5.json"]
    assert sorted(p.name for p in written[0].parent.iterdir()) == sorted(p.name for p in written)
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in written[1].read_bytes()
    assert written[2].read_bytes().startswith(b"%PDF")
    stored = json.loads(written[3].read_text(), parse_constant=refuse)
    assert stored == json.loads(json.dumps(display.values(), allow_nan=False))
    assert stored["title"] == display.title


def test_empty_bins_are_null_in_the_numbers():
    values = reliability().values()["panels"][0]
    empty = [i for i, d in enumerate(values["draws"]) if d == 0]
    assert empty
    assert all(values["accuracy"][i] is None for i in empty)
    assert all(values["proportion"][i] == 0.0 for i in empty)


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("text", HOSTILE)
def test_any_title_can_be_drawn(text, tmp_path):
    written = save_figure(ThetaDisplay(text, theta_fit()), tmp_path / "f", formats=("svg",))
    assert b"<script" not in written[0].read_bytes()


def test_drawing_leaves_pyplot_and_settings_alone(tmp_path):
    code = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from report_samples import theta_fit
from divtok.report.figures import ThetaDisplay, save_figure
import divtok.report.write
assert "matplotlib" not in sys.modules, "imported too early"
import matplotlib
before = matplotlib.rcParams.copy()  # reading each key would itself choose a backend
save_figure(ThetaDisplay("t", theta_fit()), Path(sys.argv[1]))
assert "matplotlib.pyplot" not in sys.modules
assert matplotlib.rcParams.copy() == before
"""
    here = __file__.rsplit("/", 1)[0]
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "f"), here], check=True)


def one_wrong_of_three():
    """Two responses in one bin, a third alone in another."""
    return ScoredGroup(
        benchmark="b",
        generator="g",
        problem_id=["1", "2", "3"],
        verdict=["correct", "incorrect", "correct"],
        truncated=[False] * 3,
        length=[10] * 3,
        count=[0, 1, 5],
        columns=[ScoreColumn("dtc_lin", [0.86, 0.86, 0.5])],
        pair=("p", "q"),
        theta=0.3,
    )


def test_the_natural_line_is_every_response_as_it_is(ax):
    rows = one_wrong_of_three()
    ReliabilityPanel("est", reliability_of(rows, rows.columns[0])).plot(ax)
    drawn = {c.get_label(): c.lines[0].get_xydata() for c in ax.containers if hasattr(c, "lines")}
    natural = drawn["accuracy at natural prevalence, 95 % interval"]
    np.testing.assert_allclose(natural, [[50, 100], [86, 50]])
    # (|1 - 0.5| * 1 + |1 / 2 - 0.86| * 2) / 3
    assert "40.7 % natural" in ax.get_title()


def test_bins_of_one_response_are_empty_markers(ax):
    rows = one_wrong_of_three()
    ReliabilityPanel("est", reliability_of(rows, rows.columns[0])).plot(ax)
    empty = [line for line in ax.lines if line.get_label() == "bin of one response"]
    assert [50.0, 100.0] in [point for line in empty for point in line.get_xydata().tolist()]
    assert all(line.get_markerfacecolor() == "white" for line in empty)


def test_natural_figures_are_drawn_where_there_is_no_balanced_draw(ax):
    rows = replace(one_wrong_of_three(), verdict=["correct"] * 3)
    ReliabilityPanel("est", reliability_of(rows, rows.columns[0])).plot(ax)
    assert not ax.texts
    assert "balanced" not in ax.get_title()
    assert "natural" in ax.get_title()


def test_a_figure_says_what_it_was_made_of():
    rows = one_wrong_of_three()
    about = MadeOf.of(rows)
    assert about.text() == "read by p with q; theta 0.3 bits; 3 responses, 2 right"
    curves = [reliability_of(rows, rows.columns[0])]
    display = ReliabilityDisplay.of("t", curves, about=about)
    assert display.values()["about"] == {
        "pair": ("p", "q"),
        "theta": 0.3,
        "responses": 3,
        "right": 2,
        "counted": "reasoning",
    }
    assert replace(about, counted="all").text() == (
        "read by p with q; theta 0.3 bits; counted over all response tokens; 3 responses, 2 right"
    )
    for figure in (display.figure(), CountDisplay("t", count_curve(rows), about).figure()):
        (legend,) = figure.legends
        assert legend.get_title().get_text().replace("\n", " ") == about.text()
        named = [text.get_text() for text in legend.get_texts()]
        assert any("95 % interval" in name for name in named)
