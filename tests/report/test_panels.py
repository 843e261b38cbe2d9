"""Panels of lines: what is given is drawn and kept, and nothing covers anything else."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from figure_checks import assert_tidy, drawn, panels, tick_labels
from report_samples import HOSTILE

from divtok.errors import DataError
from divtok.report.figures import save_figure
from divtok.report.panels import LineSeries, Panel, PanelsDisplay

GENERATORS = ("divtok/tiny-0.5m", "divtok/tiny-1m", "divtok/tiny-3m")
BENCHMARKS = ("arith-basic", "arith-contest")
PLACES = (*((float(i), str(i)) for i in range(11)), (11.0, "≥11"))


def line(label="a", x=(0.0, 1.0, 2.0), y=(1.0, 2.0, 3.0), series=0, **more):
    return LineSeries(label, x, y, series, **more)


def panel(*lines, title="p", x_label="theta (bits)", y_label="ECE (%)", **more):
    return Panel(title, x_label, y_label, lines or (line(),), **more)


def empty(reason="no balanced draw is possible", **more):
    return Panel("empty", "theta (bits)", "ECE (%)", (), reason=reason, **more)


def display(*rows, title="title"):
    return PanelsDisplay("name", title, rows)


def six(most=0.99, scale=1.0):
    """Three generators by two benchmarks over a hundred thetas."""
    x = tuple(most * i / 99 for i in range(1, 100))
    return tuple(
        line(
            f"{generator} on {benchmark}",
            x,
            tuple(scale * (10 + g + b + abs(v / most - 0.5)) for v in x),
            g,
            dashed=b == 1,
        )
        for g, generator in enumerate(GENERATORS)
        for b, benchmark in enumerate(BENCHMARKS)
    )


def counts(names):
    y = tuple(95.0 - 8 * i for i in range(12))
    return tuple(
        line(
            name, tuple(float(i) for i in range(12)), y, s, markers=True,
            low=tuple(v - 5 for v in y), high=tuple(v + 4 for v in y),
        )
        for s, name in enumerate(names)
    )  # fmt: skip


def divergences():
    kinds = (("JSD", "theta (bits)", 0.99), ("forward KL", "theta (nats)", 11.7),
             ("reverse KL", "theta (nats)", 6310.0))  # fmt: skip
    return display(
        *(
            tuple(panel(*six(m), title=t, x_label=x, y_label=y) for t, x, m in kinds)
            for y in ("ECE (%)", "AUROC (%)")
        )
    )


def offsets():
    x = tuple(float(k) for k in range(13))
    names = [f"{g} on {b}" for g in GENERATORS for b in BENCHMARKS]
    lines = [line(n, x, x, i // 2, dashed=i % 2 == 1) for i, n in enumerate(names)]
    return display([panel(*lines, title=t, x_label="offset k (tokens)") for t in "abc"])


def saturation():
    row = tuple(
        panel(*(line(f"n = {n}", series=i) for i, n in enumerate((5, 8, 10, 15, 20))), title=g)
        for g in GENERATORS
    )
    return display(row, row)


def by_count():
    label = "divergent tokens in the response (count)"
    sides = ((GENERATORS, "single"), ((*GENERATORS, "deepseek-ai/DeepSeek-V3.2"), "dual"))
    return display(
        tuple(
            panel(*counts(names), title=t, x_label=label, x_ticks=PLACES, y_range=(-3.0, 103.0))
            for names, t in sides
        )
    )


def ratio():
    x = (0.2, 0.5, 0.9, 1.4, 2.6, 4.9, 12.25)
    right = panel(line("a", x, x, markers=True), x_label="mean ratio in the bin (%)")
    return display((panel(line("a", markers=True), x_ticks=PLACES, x_label="count"), right))


def hostile():
    lines = [line(text, series=i) for i, text in enumerate(HOSTILE)]
    names = tuple((float(i), text) for i, text in enumerate(HOSTILE[:3]))
    long = "accuracy of a quantity with a rather long name that is folded (%)"
    return display(
        (panel(*lines, title=HOSTILE[5] * 2, x_label=HOSTILE[0] * 3, y_label=long,
               mark=1.0, mark_label="a $mark$"), empty(HOSTILE[9] * 4)),
        (panel(line("z", series=20), x_ticks=names),),
        title="$a$ long title " * 20,
    )  # fmt: skip


def one_column():
    return display((panel(*six()),))


USES = [divergences, offsets, saturation, by_count, ratio, hostile, one_column]


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("use", USES)
def test_nothing_is_clipped_covered_or_too_small(use):
    figure = drawn(use())
    assert_tidy(figure)
    assert len(figure.legends) == 1
    assert not any(ax.get_legend() for ax in figure.axes)


def test_the_operating_point_is_a_band_named_below_the_lines():
    shown = display((panel(*six(), mark=0.5, mark_label="theta 0.50 bits"),) * 2)
    figure = drawn(shown)
    assert_tidy(figure)
    for ax in panels(figure):
        band = next(x for x in ax.lines if list(x.get_xdata()) == [0.5, 0.5])
        assert band.get_linewidth() >= 3
        assert band.get_zorder() < min(x.get_zorder() for x in ax.lines if x is not band)
    texts = [t.get_text() for t in figure.legends[0].get_texts()]
    assert sorted(texts) == sorted([x.label for x in six()] + ["theta 0.50 bits"])


def test_a_missing_value_breaks_the_line():
    ax = drawn(display((panel(line(y=(1.0, None, 3.0))),))).axes[0]
    (found,) = ax.lines
    np.testing.assert_array_equal(found.get_xydata(), [[0, 1], [1, math.nan], [2, 3]])


def test_a_point_between_gaps_has_its_marker():
    y = (*(float(i) for i in range(40)), None, 50.0, None, *(float(i) for i in range(40)))
    x = tuple(float(i) for i in range(len(y)))
    (found,) = drawn(display((panel(line(x=x, y=y)),))).axes[0].lines
    marked = found.get_markevery()
    assert 41 in marked
    assert 40 not in marked
    assert 5 <= len(marked) <= 8


def test_lines_without_markers_are_still_told_apart_without_colour():
    ax = drawn(display((panel(*six()),))).axes[0]
    styles = {(x.get_marker(), x.get_linestyle()) for x in ax.lines}
    assert len(ax.lines) == len(styles) == 6
    marked = [set(x.get_markevery()) for x in ax.lines]
    assert not set.intersection(*marked)
    assert all(5 <= len(m) <= 6 for m in marked)


def test_a_marker_at_every_point_where_asked():
    (found,) = drawn(display((panel(line(markers=True)),))).axes[0].lines
    assert found.get_markevery() is None
    assert found.get_marker() == "o"


def test_intervals_go_from_low_to_high_even_beside_their_point():
    given = line(y=(1.0, None, 3.0), low=(2.0, None, 1.0), high=(4.0, None, 3.5))
    ax = drawn(display((panel(given),))).axes[0]
    segments = [s for s in ax.collections[0].get_segments() if len(s)]
    np.testing.assert_allclose(segments, [[[0, 2], [0, 4]], [[2, 1], [2, 3.5]]])


def data_lines(ax):
    return [x for x in ax.lines if len(x.get_xdata()) and x.get_linestyle() != "None"]


def test_intervals_step_aside_at_named_places_only():
    beside = drawn(display((panel(*counts("ab"), x_ticks=PLACES),))).axes[0]
    first, second = (x.get_xdata() for x in data_lines(beside))
    np.testing.assert_allclose((first + second) / 2, range(12))
    assert 0 < second[0] - first[0] < 0.5
    assert [t.get_text() for t in tick_labels(beside, "x")] == [name for _, name in PLACES]
    true = drawn(display((panel(*counts("ab")),))).axes[0]
    for found in data_lines(true):
        np.testing.assert_array_equal(found.get_xdata(), range(12))


def test_a_row_shares_its_scale_and_says_it_once():
    figure = drawn(display((panel(line(y=(0.0, 1.0, 2.0))), panel(line(y=(5.0, 6.0, 90.0))))))
    left, right = figure.axes
    assert left.get_ylim() == right.get_ylim()
    assert left.get_ylim()[1] > 90
    assert (left.get_ylabel(), right.get_ylabel()) == ("ECE (%)", "")
    assert tick_labels(left, "y")
    assert not tick_labels(right, "y")
    assert left.get_xlabel() == right.get_xlabel() == "theta (bits)"


def test_other_quantities_and_ranges_keep_their_own_scale():
    row = (
        panel(line(y=(0.0, 1.0, 2.0))),
        panel(line(y=(5.0, 6.0, 90.0)), y_label="AUROC (%)"),
        panel(line(y=(5.0, 6.0, 90.0)), y_label="AUROC (%)", y_range=(0.0, 100.0)),
    )
    figure = drawn(display(row))
    limits = [ax.get_ylim() for ax in figure.axes]
    assert limits[0][1] < 3
    assert limits[2] == (0, 100)
    assert len(set(limits)) == 3
    assert all(ax.get_ylabel() and tick_labels(ax, "y") for ax in figure.axes)
    assert_tidy(figure)


def test_a_column_shares_its_x_axis_and_title():
    top = panel(line(x=(0.0, 1.0, 2.0)), title="JSD")
    bottom = panel(line(x=(0.0, 1.0, 9.0)), title="JSD", y_label="AUROC (%)")
    upper, lower = drawn(display((top,), (bottom,))).axes
    assert upper.get_xlim() == lower.get_xlim()
    assert (upper.get_xlabel(), lower.get_xlabel()) == ("", "theta (bits)")
    assert not tick_labels(upper, "x")
    assert tick_labels(lower, "x")
    assert (upper.get_title(), lower.get_title()) == ("JSD", "")


def test_a_panel_above_an_empty_place_carries_the_axis():
    figure = drawn(display((panel(), panel()), (panel(),)))
    assert len(panels(figure)) == 3
    assert tick_labels(figure.axes[1], "x")
    assert figure.axes[1].get_xlabel() == "theta (bits)"
    assert not tick_labels(figure.axes[0], "x")


def test_an_empty_panel_says_why():
    figure = drawn(display((panel(), empty("only $one$ class"))))
    assert [t.get_text() for t in figure.axes[1].texts] == ["only \\$one\\$ class"]
    nothing = drawn(display((empty("a"), panel(line("b", y=(None, None, None))))))
    assert [ax.texts[0].get_text() for ax in nothing.axes] == ["a", "no values"]
    assert not any(tick_labels(ax, axis) for ax in nothing.axes for axis in "xy")
    assert not nothing.legends


def test_values_hold_everything():
    given = line("$a$", (0.0, 0.5), (1.0, None), 3, dashed=True, low=(0.5, None), high=(2.0, None))
    first = panel(given, mark=0.25, mark_label="m", x_ticks=((0.0, "≥0"),), y_range=(0.0, 2.0))
    stored = json.loads(json.dumps(display((first, empty())).values(), allow_nan=False))
    assert {k: stored[k] for k in ("figure", "title")} == {"figure": "name", "title": "title"}
    ((one, other),) = stored["rows"]
    assert one == {
        "title": "p",
        "x_label": "theta (bits)",
        "y_label": "ECE (%)",
        "lines": [
            {
                "label": "$a$", "x": [0.0, 0.5], "y": [1.0, None], "series": 3, "dashed": True,
                "low": [0.5, None], "high": [2.0, None], "markers": False,
            }
        ],
        "mark": 0.25,
        "mark_label": "m",
        "x_ticks": [[0.0, "≥0"]],
        "y_range": [0.0, 2.0],
        "reason": None,
        "log_x": False,
    }  # fmt: skip
    assert (other["lines"], other["reason"]) == ([], "no balanced draw is possible")


def test_a_logarithmic_axis_has_plain_numbers_at_equal_steps():
    figure = display((panel(line(x=(100.0, 200.0, 400.0)), log_x=True),)).figure()
    figure.canvas.draw()
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    first, second, third = ax.transData.transform([(100, 1), (200, 1), (400, 1)])[:, 0]
    assert second - first == pytest.approx(third - second)
    low, high = ax.get_xlim()
    shown = [
        text.get_text()
        for x, text in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
        if low <= x <= high
    ]
    assert shown == ["100", "200"]


def test_two_savings_are_the_same_bytes(tmp_path):
    shown = display((panel(line(low=(0.0, 1.0, 2.0), high=(2.0, 3.0, 4.0))),))
    one, other = (save_figure(shown, tmp_path / n / "f") for n in "ab")
    assert [p.suffix for p in one] == [".png", ".svg", ".json"]
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in other]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: panel(line("a"), line("a", series=1)), "same label, a"),
        (lambda: panel(line("a"), line("b")), "same look"),
        (lambda: display((panel(line("a")), panel(line("a", series=1)))), "looks different"),
    ],
)
def test_malformed_panels_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()
