"""What of a text that is still being written can be the answer in the end: the rest never is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.protocols.boxed import find_boxed, open_box

PIECES = ["\\boxed{", "\\boxed", "\\fbox{", "\\", "{", "}", " ", "-", ".", "4", "2", "$", "x", "é"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("no box {here}", None),
        ("so \\boxed{", len("so \\boxed{")),
        ("so \\boxed{4", len("so \\boxed{")),
        ("so \\boxed{4}", None),
        ("\\boxed{4} or \\boxed{\\frac{1", len("\\boxed{4} or \\boxed{")),
        ("\\boxed{a \\boxed{4} b", None),  # the inner one opened last
        ("\\boxed{a \\boxed{} b", len("\\boxed{")),  # a blank box is none
        ("\\boxed 4", len("\\boxed ")),  # may become 42
        ("\\boxed 4 ", None),
        ("in \\boxed form", None),
        ("\\boxed{4\\}", len("\\boxed{")),
    ],
)
def test_where_a_box_is_open(text: str, opened: int | None) -> None:
    assert open_box(text) == opened


@given(TEXTS, TEXTS)
def test_no_later_answer_reaches_into_what_is_settled(text: str, further: str) -> None:
    opened, now, later = open_box(text), find_boxed(text), find_boxed(text + further)
    settled = len(text) if opened is None else opened
    if later is None or later.start >= settled:
        return
    # What begins before is what was found by then, and it does not grow.
    assert now is not None
    assert (later.start, later.stop) == (now.start, now.stop)
