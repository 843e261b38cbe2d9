"""Trajectories in the terminal and in a notebook."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from report_samples import HOSTILE, printed

from divtok.errors import DataError
from divtok.report.trajectory import TrajectoryHeader, html_tokens, trajectory_text


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


def test_unexpected_tokens_are_inverted_whatever_colours_there_are():
    text = trajectory_text(["a", "b", "c"], [0.0, 0.9, 0.0], 0.5, excess=[5.0, 6.0, 5.1])
    styles = {text.plain[s.start : s.end]: s.style for s in text.spans}
    assert styles["c"].reverse
    assert not styles["c"].bold
    assert styles["b"].reverse
    assert styles["b"].bold
    assert "a" not in styles or not styles["a"].reverse
    drawn = printed(trajectory_text(["x"], [0.0], 0.5, excess=[9.0]), colour=True)
    assert re.search(r"\x1b\[7;?[\d;]*mx", drawn)


def test_signs_mark_unexpected_tokens_where_no_style_is_seen():
    tokens, bits, excess = ["a", " b", "\n", "{c}"], [0.9, 0.1, 0.1, 0.9], [0.0, 6.0, 6.0, 6.0]
    text = trajectory_text(tokens, bits, 0.5, excess=excess, brackets=True).plain
    head, _, body = text.partition("\n\n")
    assert body == "[a]{! b}{!↵}\n[{!{c}}]"
    assert head.splitlines() == [
        "2 divergent and 3 unexpected of 4 tokens",
        "[divergent]: the models are more than 0.5 bits apart",
        "{!unexpected}: neither model would have written it (more than 5 nats more surprising to "
        "both than they expect)",
    ]
    assert "{!" not in trajectory_text(tokens, bits, 0.5, excess=excess).plain


def test_the_legend_names_only_marks_that_are_there():
    found = trajectory_text(["a"], [0.1], 0.5, excess=[4.0], guard=3.0, brackets=True).plain
    assert "0 divergent and 1 unexpected of 1 tokens\n{!unexpected}:" in found
    assert "more than 3 nats" in found
    assert "[divergent]" not in found
    for show in (trajectory_text, html_tokens):
        page = show(["a"], [0.1], 0.5, excess=[4.0])
        assert "unexpected" not in getattr(page, "plain", page)


@pytest.mark.parametrize("show", [trajectory_text, html_tokens])
def test_where_nothing_is_known_of_unexpected_tokens_it_is_said(show):
    page = show(["a"], [0.9], 0.5, excess=None)
    assert "unexpected ones are not known" in getattr(page, "plain", page)


def test_html_marks_unexpected_tokens_with_their_numbers():
    page = html_tokens(["a", "b", "c"], [0.2, 0.8, 0.0], 0.5, excess=[0.0, 7.25, 12.3])
    assert "1 divergent and 2 unexpected of 3 tokens" in page
    assert page.count("border:") == 3  # the legend has one
    assert 'title="0.200 bits">a</span>' in page
    told = "0.000 bits, unexpected: 12.3 nats more surprising to both than they expect"
    assert f'title="{told}">c</span>' in page
    both = re.search(r'<span style="([^"]*)"[^>]*>b</span>', page)
    assert both
    assert "text-decoration:underline" in both[1]
    assert "border:2px solid" in both[1]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("brackets", [False, True])
def test_nothing_in_an_unexpected_token_acts(text, brackets):
    page = html_tokens([text, text], [0.9, 0.0], 0.5, excess=[9.0, 9.0])
    found = Parsed(page)
    assert found.tags == {"div", "p", "span"}
    assert found.attributes == {"style", "title"}
    drawn = trajectory_text([text, text], [0.9, 0.0], 0.5, excess=[9.0, 9.0], brackets=brackets)
    out = printed(drawn, width=2000)
    assert not any(ord(c) < 32 and c != "\n" for c in out)
    assert "\u202e" not in out


def test_surprises_must_match_the_tokens():
    with pytest.raises(DataError, match=r"surprises of shape \(1,\)"):
        html_tokens(["a", "b"], [0.1, 0.1], 0.5, excess=[1.0])
