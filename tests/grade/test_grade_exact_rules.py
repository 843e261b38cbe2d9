"""The rules that decide without algebra, and what they leave alone."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from divtok.errors import UsageError
from divtok.grade.answers import clean_gold
from divtok.grade.maths.equivalence import decide
from divtok.grade.maths.normalize import normalize
from divtok.records import Verdict

CORRECT, INCORRECT = Verdict.CORRECT, Verdict.INCORRECT


def verdict(gold: str, answer: str) -> Verdict | None:
    judgement = decide(gold=gold, answer=answer)
    return None if judgement is None else judgement.verdict


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("73", "073"),
        ("0", "000"),
        ("1000", "1,000"),
        ("1000", "1 000"),
        ("12345", r"12,\!345"),
        ("12345", "12{,}345"),
        ("0.5", ".5"),
        ("0.5", r"\frac{1}{2}"),
        ("-3/4", r"-\frac34"),
        ("-3/4", r"\frac{-3}{4}"),
        ("-3/4", "−0.75"),
        ("7/3", r"2\frac{1}{3}"),
        ("1/3", "0.333333"),
        ("90", r"90^\circ"),
        ("90", r"90^{\circ}"),
        ("90", "90°"),
        ("90", "90 degrees"),
        ("12", r"12 \text{ cm}^2"),
        ("12", "12 square metres"),
        ("12", r"\$12.00"),
        ("12", "$12"),
        ("28", r"28\%"),
        ("28%", "0.28"),
        ("28%", "28 percent"),
        ("A", r"\textbf{(A)}"),
        ("A", r"\text{A}"),
        ("A", r"\mathrm{A}"),
        ("A", "(A) 17"),
        ("17", r"\textbf{(A)}\ 17"),
        (r"\text{(C)}", "C"),
        ("even", r"\text{Even}"),
        ("4343_6", "4343_{6}"),
        ("4343_6", "4343"),
        ("7", "She has 7 coins."),
        (r"\boxed{5}", "$5$"),
        ("(x+1)", r"\left( x + 1 \right)"),
        ("x+1", "1+x"),
        ("abc", "cab"),
    ],
)
def test_one_value_in_two_spellings_is_correct(gold: str, answer: str) -> None:
    assert verdict(gold, answer) is CORRECT


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("73", "730"),
        ("5", "5.001"),
        ("5", "5.0000001"),
        ("0.0000001", "0.0000002"),
        ("0", "0.0000001"),
        ("1/3", "0.33"),
        ("1/3000000", "0.0000004"),
        ("1/4", "0.2500001"),
        ("28%", "0.029"),
        ("4343_6", "4343_7"),
        ("4343_6", "4344"),
        ("A", "B"),
        ("A", r"\textbf{(B)} 17"),
        ("odd", r"\text{even}"),
        ("5", "5 or 6"),
        ("5", "5x"),
        ("5", "5 pi"),
    ],
)
def test_another_value_is_incorrect(gold: str, answer: str) -> None:
    assert verdict(gold, answer) is INCORRECT


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "5 million"),
        ("7", "It is not 7"),
        ("7", "less than 7"),
        ("7", "7 times 2"),
        ("1", r"\sin^2 x + \cos^2 x"),
        ("word", "drow"),
        ("5", r"\frac{5}{0}"),
        ("11/2", r"3\frac{5}{2}"),
    ],
)
def test_what_is_not_a_plain_value_is_left_to_algebra(gold: str, answer: str) -> None:
    assert verdict(gold, answer) is None


def test_degrees_stay_a_factor_inside_trigonometric_functions() -> None:
    assert normalize(r"\sin 30^\circ") == r"\sin (\frac{30 \pi}{180})"
    assert normalize(r"30^\circ") == "30"


integers = st.integers(min_value=-(10**12), max_value=10**12)


@given(integers, st.integers(min_value=0, max_value=3))
def test_every_format_of_an_integer_is_that_integer(value: int, zeros: int) -> None:
    sign, digits = ("-" if value < 0 else ""), str(abs(value))
    grouped = f"{abs(value):,}"
    for written in (
        f"{sign}{'0' * zeros}{digits}",
        f"{sign}{grouped}",
        f"{sign}{grouped.replace(',', '{,}')}",
        f"{sign}{grouped.replace(',', ' ')}",
        f"{sign}{digits}.{'0' * zeros}",
        f"${sign}{digits}$",
        rf"\({sign}{digits}\)",
        rf"{sign}{digits}\text{{ units}}",
        f"{sign}{digits}.",
        rf"{sign}\frac{{{digits}}}{{1}}",
    ):
        assert verdict(str(value), written) is CORRECT, written
        assert verdict(written, str(value)) is CORRECT, written


@given(integers, integers)
def test_different_integers_are_incorrect(gold: int, answer: int) -> None:
    assume(gold != answer)
    assert verdict(str(gold), f"{answer:,}") is INCORRECT


@given(st.integers(-999, 999), st.integers(1, 999), st.integers(1, 9))
def test_every_format_of_a_fraction_is_that_fraction(top: int, bottom: int, scale: int) -> None:
    value = Fraction(top, bottom)
    gold = f"{value.numerator}/{value.denominator}"
    sign, top = ("-" if top < 0 else ""), abs(top)
    for written in (
        f"{sign}{top * scale}/{bottom * scale}",
        rf"{sign}\frac{{{top * scale}}}{{{bottom * scale}}}",
        rf"\dfrac{{{sign}{top * scale}}}{{{bottom * scale}}}",
        rf"{sign}\tfrac {{ {top * scale} }}{{ {bottom * scale} }}",
    ):
        assert verdict(gold, written) is CORRECT, written
        assert verdict(f"{value + 1}", written) is INCORRECT, written


@given(st.integers(-(10**9), 10**9), st.integers(0, 9))
def test_a_terminating_decimal_is_its_fraction_and_no_other(units: int, places: int) -> None:
    value = Fraction(units, 10**places)
    sign, whole = ("-" if units < 0 else ""), abs(units) // 10**places
    decimal = f"{sign}{whole}.{abs(units) % 10**places:0{max(places, 1)}d}"
    fraction = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
    assert verdict(fraction, decimal) is CORRECT
    assert verdict(fraction, decimal + "0000001") is INCORRECT


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_two_texts_can_be_decided_or_left_alone(gold: str, answer: str) -> None:
    judgement = decide(gold=gold, answer=answer)
    if judgement is not None and judgement.verdict not in (CORRECT, INCORRECT):
        assert judgement.reason


@given(st.text(min_size=1, max_size=100).filter(str.strip))
def test_an_answer_equals_itself(text: str) -> None:
    assert verdict(text, text) is CORRECT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("(" * 300 + "x" + ")" * 300, "answer nested too deeply (300 levels, at most 32)"),
        ("1" * 1001, "answer has a number of more than 1000 digits"),
        ("1,111" * 1000, "answer has a number of more than 1000 digits"),
        ("x" * 20_001, "answer too long (20001 characters, at most 20000)"),
    ],
)
def test_over_a_cap_is_undetermined_with_the_reason(answer: str, reason: str) -> None:
    judgement = decide(gold="5", answer=answer)
    assert judgement is not None
    assert judgement.verdict is Verdict.UNDETERMINED
    assert judgement.reason == reason


def test_a_gold_answer_over_a_cap_is_undetermined_too() -> None:
    judgement = decide(gold="[" * 40, answer="5")
    assert judgement is not None
    assert judgement.reason == "gold nested too deeply (40 levels, at most 32)"


@pytest.mark.parametrize("missing", [None, "", "  \n", float("nan"), "nan", "NaN"])
def test_missing_gold_answers(missing: str | float | None) -> None:
    assert clean_gold(missing) is None


def test_gold_answers_that_are_numbers_become_text() -> None:
    assert clean_gold(42) == "42"
    assert clean_gold(2.5) == "2.5"


@pytest.mark.parametrize("wrong", [True, ["5"], {"answer": 5}])
def test_gold_answers_of_other_types_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError, match="gold answer"):
        clean_gold(wrong)  # type: ignore[arg-type]
