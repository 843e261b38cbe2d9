r"""Plain numbers, read exactly: 073, 1,000, -3/4, \frac{1}{2}, 2\frac{1}{3}, 12.50, 28%, 12_7,
3 \cdot 10^{-5}.

Exact rationals only, by pattern and never by evaluation: an answer with any other operator in it
is not a plain number, and is left to the symbolic comparison.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

# A decimal may stand for a value that decimals cannot write exactly (1/3, pi) when both agree after
# rounding to this many places and their relative difference is small as well: without the second
# condition every pair of tiny values would be equal.
ROUNDING_PLACES = 6
RELATIVE_TOLERANCE = Fraction(1, 100_000)

_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+|\d{1,3}(?:[ ]\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_INTEGER = r"\d{1,3}(?:,\d{3})+|\d+"
_NUMBER = re.compile(
    rf"""
    (?P<sign>[-+]?)\s?
    (?:
        (?P<whole>\d+)?\s?\\frac\s?(?:\{{\s?(?P<inner_sign>-?)\s?(?P<top>{_INTEGER})\s?\}}|(?P<top1>\d))
            \s?(?:\{{\s?(?P<bottom>{_INTEGER})\s?\}}|(?P<bottom1>\d))
      | (?P<left>{_INTEGER})\s?/\s?(?P<right>{_INTEGER})
      | (?P<plain>{_UNSIGNED})
        (?:\s?\\(?:cdot|times)\s?10\s?\^\s?(?:\{{\s?(?P<power>[-+]?\d{{1,3}})\s?\}}|(?P<power1>\d)(?!\d)))?
      | 10\s?\^\s?(?:\{{\s?(?P<ten>[-+]?\d{{1,3}})\s?\}}|(?P<ten1>\d)(?!\d))
    )
    (?:\s?(?P<percent>%|percentage|percent|pct|\\text\{{\s?(?:percent|pct)\s?\}}))?
    """,
    re.VERBOSE,
)
_TEXT_UNIT = re.compile(r"\s?\\text\{[^{}\\]*\}(?:\^(?:\d|\{\d\}))?\s?")
_WORD_UNIT = re.compile(r"\s?(?:\s[A-Za-z]{2,}\.?(?:\^(?:\d|\{\d\}))?)+\s?")
_CHANGES_VALUE = re.compile(
    r"\b(?:pi|sqrt|root|and|or|to|mod|times|plus|minus|over|divided|infinity|inf|percent|pct"
    r"|percentage|hundred|thousand|million|billion|trillion|dozen|half|third|quarter|base|sin|cos"
    r"|tan|log|ln|squared|cubed)\b",
    re.IGNORECASE,
)
# Words that join a number to something else; any other word after a number is a unit.
_JOINS = re.compile(r"\b(?:by|in|if|when|for|where|not|is|no|less|more)\b", re.IGNORECASE)
# A sentence of words and one number ("She has 7 coins") states that number, unless a word before
# it makes it a bound or denies it, or a word anywhere makes it part of a larger value.
_PROSE = re.compile(r"[A-Za-z\s:;,'\"!?$.*-]*")
_STATED = re.compile(r"(?<![\w.,])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w/^_])")
_BOUNDS = re.compile(
    r"\b(?:not|no|than|least|most|about|approximately|around|nearly|under|above)\b", re.IGNORECASE
)
_BASED = re.compile(r"(?P<digits>-?[0-9A-Z]+)_(?:(?P<base1>\d)|\{\s?(?P<base>\d{1,2})\s?\})")


@dataclass(frozen=True, slots=True)
class PlainNumber:
    """A number as written: its exact value, whether typed as a decimal, and its percent sign."""

    value: Fraction
    decimal: bool
    percent: bool


@dataclass(frozen=True, slots=True)
class BasedNumber:
    """A numeral with the base it is written in, such as 4343_6."""

    digits: str
    base: int


def read_number(normalized: str) -> PlainNumber | None:
    """A plain number with or without unit, from a normalised answer; None for all else."""
    match = _NUMBER.match(normalized.lstrip("$€£¥ "))
    if match is None or not _is_unit(match.string[match.end() :]):
        return None
    value = _value(match)
    if value is None:
        return None
    decimal = "." in (match["plain"] or "")
    return PlainNumber(-value if match["sign"] == "-" else value, decimal, bool(match["percent"]))


def without_unit(normalized: str) -> str:
    r"""A value without the unit in a text command behind it: 3\sqrt{2} \text{ cm}^2."""
    start = normalized.rfind(r"\text{")
    if (
        start <= 0
        or not _TEXT_UNIT.fullmatch(normalized, start)
        or not _is_unit(normalized[start:])
    ):
        return normalized
    return normalized[:start].rstrip()


def read_stated_number(sentence: str) -> PlainNumber | None:
    """The number a sentence states, where it has exactly one and says nothing else about it."""
    numbers = _STATED.findall(sentence)
    if len(numbers) != 1:
        return None
    before, after = sentence.split(numbers[0], 1)
    if not before.strip() or not _PROSE.fullmatch(before) or not _PROSE.fullmatch(after):
        return None
    if _BOUNDS.search(before) or _CHANGES_VALUE.search(sentence):
        return None
    return read_number(numbers[0])


def read_based_number(normalized: str) -> BasedNumber | None:
    match = _BASED.fullmatch(normalized.replace(" ", ""))
    if match is None:
        return None
    return BasedNumber(match["digits"].lstrip("0") or "0", int(match["base"] or match["base1"]))


def same_number(gold: PlainNumber, answer: PlainNumber) -> bool:
    """Equal in value; a percent sign on one side only may also be a mere unit (28% and 28)."""
    if _same_value(gold, answer):
        return True
    if gold.percent == answer.percent:
        return False
    return _same_value(_as_fraction(gold), _as_fraction(answer))


def close(gold: Fraction, answer: Fraction) -> bool:
    """Whether a rounded decimal may stand for the value it was rounded from."""
    if round(gold, ROUNDING_PLACES) != round(answer, ROUNDING_PLACES):
        return False
    return abs(gold - answer) <= RELATIVE_TOLERANCE * max(abs(gold), abs(answer))


def _same_value(gold: PlainNumber, answer: PlainNumber) -> bool:
    if gold.value == answer.value:
        return True
    rounded, exact = (gold, answer) if gold.decimal else (answer, gold)
    if not rounded.decimal or exact.decimal or _terminates(exact.value):
        return False
    return close(gold.value, answer.value)


def _as_fraction(number: PlainNumber) -> PlainNumber:
    value = number.value / 100 if number.percent else number.value
    return PlainNumber(value, number.decimal, percent=False)


def _terminates(value: Fraction) -> bool:
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def _value(match: re.Match[str]) -> Fraction | None:
    if match["plain"]:
        value = Fraction(match["plain"].replace(",", "").replace(" ", ""))
        power = match["power"] or match["power1"]
        return value if power is None else value * Fraction(10) ** int(power)
    if ten := match["ten"] or match["ten1"]:
        return Fraction(10) ** int(ten)
    top = int((match["top"] or match["top1"] or match["left"]).replace(",", ""))
    bottom = int((match["bottom"] or match["bottom1"] or match["right"]).replace(",", ""))
    if bottom == 0:
        return None
    part = Fraction(-top if match["inner_sign"] else top, bottom)
    if match["whole"] is None:
        return part
    # Beside a whole number only a proper fraction is a mixed number; 3\frac{5}{2} is a product.
    return int(match["whole"]) + part if 0 < part < 1 else None


def _is_unit(rest: str) -> bool:
    if not rest.strip():
        return True
    if not _TEXT_UNIT.fullmatch(rest) and not _WORD_UNIT.fullmatch(rest):
        return False
    return not _CHANGES_VALUE.search(rest) and not _JOINS.search(rest)
