"""Trajectories and tables in the terminal and in a notebook."""

from __future__ import annotations

import io
from html.parser import HTMLParser

import numpy as np
import pytest
from report_samples import HOSTILE, evaluation
from rich.console import Console

from divtok.errors import DataError
from divtok.records import Interval
from divtok.report.metric_table import metric_table
from divtok.report.terminal import (
    TrajectoryHeader,
    html_tokens,
    rich_table,
    rich_tables,
    trajectory_text,
)


def printed(thing, *, colour=False, width=80):
    out = io.StringIO()
    Console(
        file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    ).print(thing)
    return out.getvalue()


def spans(text):
    return [(text.plain[s.start : s.end], s.style) for s in text.spans]


def test_divergent_means_strictly_above_theta_and_within_the_reasoning():
    text = trajectory_text(
        ["a", "b", "c", "d"], [0.5, 0.51, 0.9, 0.0], 0.5, reasoning=[True, True, False, True]
    )
    assert text.plain.startswith("1 divergent of 4 tokens (more than 0.5 bits)")
    styles = dict(spans(text)[2:])
    assert styles["b"].bold
    assert styles["b"].underline
    assert not styles["a"].underline
    assert not styles["c"].underline


def test_colour_grows_with_divergence():
    text = trajectory_text(["low", "mid", "high", "most"], [0.01, 0.3, 0.7, 1.0], 0.5)
    styles = dict(spans(text)[2:])
    assert "low" not in styles or styles["low"].bgcolor is None
    blues = [styles[t].bgcolor.get_truecolor().blue for t in ("mid", "high", "most")]
    assert blues == sorted(blues, reverse=True)
    assert len(set(blues)) == 3


def test_divergences_that_round_above_one_bit_are_shown():
    assert "x" in trajectory_text(["x"], [1 + 2e-7], 0.5).plain


@pytest.mark.parametrize("text", HOSTILE)
def test_no_escape_or_markup_in_a_token_acts(text):
    header = TrajectoryHeader(*([text] * 4), confidence=0.5, estimator=text)
    out = printed(trajectory_text([text, text], [0.0, 0.9], 0.5, header=header), width=2000)
    assert not any(ord(c) < 32 and c != "\n" for c in out)
    assert "\u202e" not in out
    if text.startswith("[bold]"):
        assert text in out


def test_newlines_break_lines_and_divergent_ones_show():
    text = trajectory_text(["a\n", "\n", "b"], [0.0, 0.9, 0.0], 0.5)
    assert text.plain.endswith("\n\na\n↵\nb")


def test_brackets_mark_divergent_tokens_where_no_style_is_seen():
    tokens, bits = ["a", " b", "\n", "[c]"], [0.9, 0.1, 0.9, 0.9]
    text = trajectory_text(tokens, bits, 0.5, brackets=True)
    assert text.plain.partition("\n\n")[2] == "[a] b[↵]\n[[c]]"
    assert "[a]" not in trajectory_text(tokens, bits, 0.5).plain


def test_long_lines_wrap():
    out = printed(trajectory_text(["word "] * 100, [0.0] * 100, 0.5), width=40)
    assert max(len(line) for line in out.splitlines()) <= 40


def test_header_lines():
    header = TrajectoryHeader("1+1?", "2", None, "correct", 0.86, "dtc_lin")
    lines = trajectory_text(["2"], [0.1], 0.5, header=header).plain.splitlines()
    assert [line.split(None, 1) for line in lines[:5]] == [
        ["question", "1+1?"],
        ["answer", "2"],
        ["gold", "—"],
        ["verdict", "correct"],
        ["confidence", "0.860 (dtc_lin)"],
    ]


@pytest.mark.parametrize("show", [trajectory_text, html_tokens])
def test_tokens_and_divergences_must_match(show):
    with pytest.raises(DataError, match="2 tokens"):
        show(["a", "b"], [0.1], 0.5)


class Parsed(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.content = set(), set(), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.content += data


@pytest.mark.parametrize("text", HOSTILE)
def test_html_is_inert_and_shows_the_text(text):
    page = html_tokens([text, "x"], np.array([0.9, 0.1]), 0.5)
    found = Parsed(page)
    assert found.tags == {"div", "p", "span"}
    assert found.attributes == {"style", "title"}
    if text.isascii() and text.isprintable():
        assert text in found.content
    page.encode("utf-8")


def test_html_marks_divergent_tokens():
    page = html_tokens(["a", "b"], [0.2, 0.8], 0.5)
    assert "1 divergent of 2 tokens" in page
    assert page.count("text-decoration:underline") == 1
    assert 'title="0.800 bits">b</span>' in page


def test_rich_table_shows_marks_sections_and_hostile_names():
    found = [
        evaluation("a", ece=0.1, generator="[red]g[/red]\x1b[0m"),
        evaluation("b", ece=0.2, generator="[red]g[/red]\x1b[0m"),
    ]
    table = rich_tables([metric_table(found, "ece")])
    plain = printed(table, width=120)
    assert "[red]g[/red]␛[0m" in plain
    assert "\x1b" not in plain
    assert "paper protocol" in plain
    assert "10.0* 20.0'" in plain
    coloured = printed(table, colour=True, width=120)
    assert "\x1b[1m10.0" in coloured
    assert "\x1b[4m20.0" in coloured


@pytest.mark.parametrize("width", [24, 60, 80, 200])
def test_a_wide_table_is_cut_into_parts_and_no_figure_is_shortened(width):
    names = [f"estimator_{letter}" for letter in "abcdefghijkl"]
    found = [evaluation(name, ece=0.1 + i / 100) for i, name in enumerate(names)]
    text = printed(rich_table(metric_table(found, "ece"), width=width), width=width)
    table = text.split("Expected calibration error")[0]
    assert "…" not in table
    for i, name in enumerate(names):
        assert name in table
        assert f"{10 + i}.0" in table
    assert table.count("continued") == (0 if width == 200 else table.count("Generator") - 1)
    assert max(map(len, table.splitlines())) <= max(width, 40)


@pytest.mark.parametrize("width", range(40, 90))
def test_a_long_section_name_counts_where_columns_are_cut(width):
    found = [
        evaluation(name, benchmark="a_benchmark_with_a_name", generator="g")
        for name in ("nsl", "mean_prob", "entropy", "dtc_lin", "dtc_prod")
    ]
    text = printed(rich_table(metric_table(found, "ece"), width=width), width=width)
    assert "…" not in text


def test_tables_beside_each_other_say_once_what_they_share():
    found = [evaluation("a", ece=0.1), evaluation("b", ece=0.2)]
    text = printed(rich_tables([metric_table(found, m) for m in ("ece", "auroc")]), width=120)
    whole = " ".join(text.split())
    assert whole.count("paper protocol") == 1
    assert whole.count("Left out: 2 of 82 responses") == 1
    assert whole.count("Best of a row *, second '.") == 1
    assert whole.count("Area under the ROC curve") == 1


def test_figures_stay_below_each_other_whatever_marks_they_have():
    found = [
        evaluation(name, generator=g, ece=value)
        for g, values in (("x", (0.1, 0.2)), ("y", (0.3, 0.05)))
        for name, value in zip("ab", values, strict=True)
    ]
    lines = printed(rich_table(metric_table(found, "ece")), width=120).splitlines()
    x, y = (next(line for line in lines if line.startswith(name)) for name in "xy")
    assert x.index("10.0*") == y.index("30.0'")
    assert x.index("20.0'") + 1 == y.index("5.0*")


def test_intervals_are_shown_where_there_is_room():
    interval = Interval(0.1, 0.3)
    found = [evaluation(name, natural_ece_interval=interval) for name in ("nsl", "entropy")]
    table = metric_table(found, "natural_ece")
    assert "20.0 [10.0, 30.0]" in printed(rich_table(table, width=100), width=100)
    assert "[10.0" not in printed(rich_table(table, width=50), width=50)
