"""Foreign text made safe, each kind for its place."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import HOSTILE

from divtok.report.text import plot_text, slug
from divtok.screen import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é ∑ 漢", "plain é ∑ 漢"),
        ("\x1b[0m", "␛[0m"),
        ("a\tb\nc", "a␉b␊c"),
        ("\x7f\x9b", "␡⟨U+009B⟩"),
        ("\u202e", "⟨U+202E⟩"),
        ("\ud800", "⟨U+D800⟩"),
        ("👩\u200d🔬", "👩\u200d🔬"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_visible_text_can_be_printed_and_encoded(text):
    out = visible(text)
    out.encode("utf-8")
    assert not {unicodedata.category(c) for c in out} & {"Cc", "Cs", "Zl", "Zp"}


@settings(deadline=None)
@given(st.text())
def test_slug_is_a_safe_file_name(text):
    name = slug(text)
    assert name.isascii()
    assert 0 < len(name) <= 80
    assert not name.startswith((".", "-"))
    assert "/" not in name


def test_slug_keeps_a_model_name_readable():
    assert slug("Qwen/Qwen2.5-7B on MATH-500") == "Qwen-Qwen2.5-7B-on-MATH-500"
    assert slug("../..") == "unnamed"


@pytest.mark.parametrize("text", [*HOSTILE, "$a$", "$$", "\\$"])
def test_plot_text_is_never_a_formula(text):
    from matplotlib.cbook import is_math_text

    assert not is_math_text(plot_text(text))
