"""Heat maps: every cell shows its number, blank ones none, and nothing covers anything else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from figure_checks import assert_tidy, drawn, panels, tick_labels
from matplotlib.colors import to_rgb
from report_samples import HOSTILE

from divtok.report.figures import save_figure
from divtok.report.maps import HeatMap, MapsDisplay

ROWS, COLUMNS = ("tiny-0.5m", "tiny-1m", "tiny-3m"), ("0.25m", "0.5m", "1m", "3m")


def grid(rows, columns, *, blank=(), scale=1.0):
    return tuple(
        tuple(None if (r, c) in blank else scale * (r * columns + c) for c in range(columns))
        for r in range(rows)
    )


def three(rows, columns, *, blank=()):
    return (
        HeatMap("best theta", grid(rows, columns, blank=blank, scale=0.07), "{:.2f}", "bits"),
        HeatMap("lowest ECE", grid(rows, columns, blank=blank, scale=2.5), "{:.1f}", "%"),
        HeatMap("AUROC there", grid(rows, columns, blank=blank, scale=8.0), "{:.1f}", "%"),
    )


def display(maps=None, rows=ROWS, columns=COLUMNS, title="title"):
    maps = three(len(rows), len(columns), blank={(0, 3)}) if maps is None else maps
    return MapsDisplay("name", title, "generator", "auxiliary", rows, columns, maps)


def long_names():
    return display(rows=ROWS[:2], columns=tuple(f"divtok/{r}" for r in ROWS))


def many_columns():
    return display(columns=tuple(f"Qwen3-{n}B-Instruct" for n in (1, 4, 8, 14, 32, 72, 235, 480)))


def hostile():
    maps = (HeatMap(HOSTILE[5] * 3, grid(3, 4), "{:.0f} $", "$_"), *three(3, 4))
    return MapsDisplay("f", HOSTILE[0] * 5, HOSTILE[1], HOSTILE[9] * 5, tuple(HOSTILE[:3]),
                       tuple(HOSTILE[3:7]), maps)  # fmt: skip


def one():
    return display((HeatMap("AUROC", grid(1, 1), "{:.1f}", "%"),), rows=("a",), columns=("b",))


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("use", [display, long_names, many_columns, hostile, one])
def test_nothing_is_clipped_covered_or_too_small(use):
    assert_tidy(drawn(use()))


def test_the_usual_maps_stand_side_by_side_with_their_units():
    figure = drawn(display())
    titles = [ax.get_title() for ax in panels(figure)]
    assert titles == ["best theta (bits)", "lowest ECE (%)", "AUROC there (%)"]
    assert len({round(ax.get_position().y0, 3) for ax in panels(figure)}) == 1
    assert [ax.get_xlabel() for ax in figure.axes] == ["auxiliary"] * 3
    assert [ax.get_ylabel() for ax in figure.axes] == ["generator", "", ""]
    for ax in figure.axes:
        assert [t.get_text() for t in tick_labels(ax, "x")] == list(COLUMNS)
    assert [t.get_text() for t in tick_labels(figure.axes[0], "y")] == list(ROWS)
    assert not tick_labels(figure.axes[1], "y")


def test_every_cell_shows_its_number_in_its_place():
    values = ((0.125, None, -3.0), (7.0, 1e3, 0.0))
    one_map = HeatMap("m", values, "{:.2f}", "bits")
    ax = drawn(display((one_map,), rows=("a", "b"), columns=("x", "y", "z"))).axes[0]
    shown = {t.get_position(): t.get_text() for t in ax.texts}
    assert shown == {
        (0, 0): "0.12", (2, 0): "-3.00", (0, 1): "7.00", (1, 1): "1000.00", (2, 1): "0.00",
    }  # fmt: skip
    # The first row is at the top.
    assert ax.get_ylim()[0] > ax.get_ylim()[1]


def test_a_blank_cell_is_hatched_and_explained():
    figure = drawn(display())
    for ax in figure.axes:
        (blank,) = ax.patches
        assert (blank.get_x(), blank.get_y()) == (2.5, -0.5)
        assert blank.get_hatch()
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["no value"]
    full = drawn(display(three(3, 4)))
    assert not full.legends
    assert not any(ax.patches for ax in full.axes)


def test_a_map_without_any_value_is_all_blank():
    nothing = HeatMap("m", ((None, None),), "{:.1f}", "")
    ax = drawn(display((nothing,), rows=("a",), columns=("x", "y"))).axes[0]
    assert len(ax.patches) == 2
    assert not ax.texts
    assert ax.get_title() == "m"


def luminance(colour):
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_numbers_are_readable_on_every_colour():
    columns = tuple(str(i) for i in range(12))
    ax = drawn(display((HeatMap("m", grid(3, 12), "{:.0f}", ""),), columns=columns)).axes[0]
    image = ax.images[0]
    for text in ax.texts:
        cell = image.cmap(image.norm(float(text.get_text())))
        dark, light = sorted((luminance(text.get_color()), luminance(cell)))
        # The best of black and white is never below 4.58, and 4.5 is what WCAG AA asks for.
        assert (light + 0.05) / (dark + 0.05) >= 4.5
    assert {t.get_color() for t in ax.texts} == {"white", "black"}


def test_maps_go_below_each_other_where_numbers_would_not_fit():
    figure = drawn(many_columns())
    rows = sorted({round(ax.get_position().y0, 3) for ax in panels(figure)})
    assert len(rows) > 1
    lowest = [ax for ax in panels(figure) if round(ax.get_position().y0, 3) == rows[0]]
    assert all(len(tick_labels(ax, "x")) == 8 for ax in lowest)
    for ax in panels(figure):
        width = ax.get_window_extent().width / 8
        assert all(t.get_window_extent().width < width for t in ax.texts)


def test_values_hold_everything():
    shown = display((HeatMap("m", ((0.5, None),), "{:.2f}", "bits"),), ("a",), ("x", "y"))
    assert json.loads(json.dumps(shown.values(), allow_nan=False)) == {
        "figure": "name",
        "title": "title",
        "row_label": "generator",
        "column_label": "auxiliary",
        "rows": ["a"],
        "columns": ["x", "y"],
        "maps": [
            {
                "title": "m",
                "values": [[0.5, None]],
                "format": "{:.2f}",
                "unit": "bits",
                "better": None,
            }
        ],
        "about": "",
    }


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_good_end_is_bright(better):
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    HeatMap("m", ((0.1, 0.9),), "{:.1f}", "", better).plot(ax)
    image = ax.images[0]
    low, high = (sum(image.to_rgba(np.array([value]))[0][:3]) for value in (0.1, 0.9))
    assert (high > low) == (better == "higher")


def test_what_it_was_made_of_is_below_the_maps():
    shown = replace(
        display((HeatMap("m", ((0.5,),), "{:.2f}", "bits"),), ("a",), ("x",)), about="3 responses"
    )
    (legend,) = shown.figure().legends
    assert legend.get_title().get_text() == "3 responses"


def test_two_savings_are_the_same_bytes(tmp_path):
    shown = display(three(1, 2, blank={(0, 1)}), ("a",), ("x", "y"))
    one, other = (save_figure(shown, tmp_path / n / "f") for n in "ab")
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in other]
