"""The reply to the question how sure the model is: an integer from 0 to 10 in a box."""

from __future__ import annotations

import pytest

from divtok.protocols.stated import read_rating
from divtok.records import Statement

NO_BOX = r"no \boxed{} found"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\boxed{8}", 0.8),
        (r"I am sure: \boxed{10}", 1.0),
        (r"\boxed{0}", 0.0),
        (r"\boxed{3} no, \boxed{7}.", 0.7),
        (r"$\boxed{ 8 }$", 0.8),
        (r"\boxed{8.0}", 0.8),
        (r"\boxed{8/10}", 0.8),
        (r"\boxed{10 / 10}", 1.0),
        (r"\boxed{$8$}", 0.8),
        (r"\boxed{\text{8}}", 0.8),
        (r"\boxed{$\mathbf{8}$}", 0.8),
        (r"\boxed{\text{$8$}}", 0.8),
        (r"\boxed{\(8\)}", 0.8),
        (r"\boxed 8.", 0.8),
        (r"\boxed{8} of 10, out of \boxed{}", 0.8),
        ("", NO_BOX),
        ("8", NO_BOX),
        (r"\boxed{}", NO_BOX),
        (r"\boxed{8", NO_BOX),
        *(
            (rf"\boxed{{{content}}}", f'the box holds "{content}", not an integer from 0 to 10')
            for content in (
                *("11", "100", "-1", "8.5", "80%", r"80\%", "0.8", "eight", "NaN", "inf", "8, 9"),
                *("8 9", "8-9", "8/9", "8/100", r"\frac{8}{10}", "٨", "8!", "1e1", "$8", "x = 8"),
                *("8 out of 10", r"\text{high}"),
            )
        ),
        (rf"\boxed{{{'1' * 5000}}}", f'the box holds "{"1" * 40}...", not an integer from 0 to 10'),
    ],
)
def test_a_rating_after_the_answer(text: str, expected: float | str) -> None:
    if isinstance(expected, str):
        assert read_rating(text) == Statement(None, expected)
    else:
        assert read_rating(text) == Statement(expected)
