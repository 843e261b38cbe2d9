"""Grouped bars: heights, whiskers, values above, and a missing bar that says so."""

from __future__ import annotations

import json

import pytest
from figure_checks import assert_tidy, drawn, tick_labels
from matplotlib.container import BarContainer
from report_samples import HOSTILE

from divtok.report.bars import BarsDisplay, BarSeries
from divtok.report.figures import save_figure

NAMES = ("UQAC attn", "UQAC sim", "UQAC mean", "DTC lin")


def display(groups=("a", "b"), series=None, **more):
    if series is None:
        series = (BarSeries("first", (12.34, None), (1.5, None)), BarSeries("second", (20.0, 5.06)))
    return BarsDisplay("name", "title", "ECE (%)", groups, series, **more)


def pilot(groups):
    return display(
        groups,
        tuple(
            BarSeries(
                name,
                tuple(7.0 + 8 * g + s for g in range(len(groups))),
                tuple(0.5 + s for _ in groups),
            )
            for s, name in enumerate(NAMES)
        ),
    )


def three():
    return pilot(("arith-basic", "arith-contest", "gsm-like"))


def four():
    return pilot(tuple(f"divtok/tiny-{n}m on arith-contest" for n in (1, 3, 5, 9)))


def hostile():
    values = tuple(-5.0 + i for i in range(len(HOSTILE)))
    return BarsDisplay("f", HOSTILE[5] * 5, HOSTILE[0] * 2, tuple(HOSTILE),
                       tuple(BarSeries(name, values) for name in HOSTILE))  # fmt: skip


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("use", [display, three, four, hostile])
def test_nothing_is_clipped_covered_or_too_small(use):
    figure = drawn(use())
    assert_tidy(figure)
    assert len(figure.legends) == 1


def drawn_bars(ax):
    """The bars of each series, without the whiskers."""
    return [c.patches for c in ax.containers if isinstance(c, BarContainer)]


def test_bars_whiskers_and_values_are_what_is_given():
    figure = drawn(display())
    (ax,) = figure.axes
    assert [[b.get_height() for b in bars] for bars in drawn_bars(ax)] == [[12.34], [20.0, 5.06]]
    (whisker,) = (s for c in ax.collections for s in c.get_segments())
    assert whisker[:, 1] == pytest.approx([10.84, 13.84])
    assert ax.get_ylabel() == "ECE (%)"
    assert [t.get_text() for t in tick_labels(ax, "x")] == ["a", "b"]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["first", "second"]


def test_each_value_stands_above_its_bar_and_a_missing_one_says_so():
    ax = drawn(display()).axes[0]
    assert [t.get_text() for t in ax.texts] == ["12.3", "n/a", "20.0", "5.1"]
    heights = [t.xy[1] for t in ax.texts]
    assert heights == pytest.approx([13.84, 0, 20.0, 5.06])
    places = [t.xy[0] for t in ax.texts]
    assert places == pytest.approx([-0.225, 0.775, 0.225, 1.225])


def test_a_series_without_any_bar_is_still_named():
    figure = drawn(display(series=(BarSeries("gone", (None, None)), BarSeries("b", (1.0, 2.0)))))
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["gone", "b"]
    assert [t.get_text() for t in figure.axes[0].texts] == ["n/a", "n/a", "1.0", "2.0"]


def test_the_format_can_be_chosen():
    shown = display(series=(BarSeries("a", (0.125, 0.5)),), format="{:.2f}")
    assert [t.get_text() for t in drawn(shown).axes[0].texts] == ["0.12", "0.50"]


def test_values_of_bars_that_point_down_are_below_them():
    ax = drawn(display(series=(BarSeries("a", (-4.0, 2.0), (1.0, 1.0)),))).axes[0]
    down, up = ax.texts
    assert (down.xy[1], down.get_va()) == (-5.0, "top")
    assert (up.xy[1], up.get_va()) == (3.0, "bottom")


def test_values_are_left_out_where_there_is_no_room():
    names = tuple(f"group {i}" for i in range(12))
    series = tuple(BarSeries(n, (None, *(10.0,) * 11)) for n in NAMES)
    figure = drawn(display(names, series))
    assert_tidy(figure)
    assert figure.get_figwidth() == 6.75
    assert {t.get_text() for t in figure.axes[0].texts} == {"–"}
    assert sum(len(bars) for bars in drawn_bars(figure.axes[0])) == 44


def test_few_bars_fit_a_column():
    assert drawn(three()).get_figwidth() == 3.4
    assert drawn(four()).get_figwidth() == 6.75


def test_series_differ_without_colour():
    series = tuple(BarSeries(f"s{i}", (1.0, 2.0)) for i in range(9))
    first = [bars[0] for bars in drawn_bars(drawn(display(series=series)).axes[0])]
    assert len({(bar.get_facecolor(), bar.get_hatch()) for bar in first}) == 9
    assert len({bar.get_hatch() for bar in first[:7]}) == 7


def test_values_hold_everything():
    assert json.loads(json.dumps(display().values(), allow_nan=False)) == {
        "figure": "name",
        "title": "title",
        "y_label": "ECE (%)",
        "groups": ["a", "b"],
        "series": [
            {"label": "first", "values": [12.34, None], "sd": [1.5, None]},
            {"label": "second", "values": [20.0, 5.06], "sd": None},
        ],
        "format": "{:.1f}",
        "about": "",
    }


def test_two_savings_are_the_same_bytes(tmp_path):
    one, other = (save_figure(display(), tmp_path / n / "f") for n in "ab")
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in other]
