r"""Answers of several values: lists, tuples, sets, intervals, \pm, and values with a name (x = 5).

- A list without brackets (1, 2 or x = 1, x = 2) and a set in braces have no order.
- A tuple and an interval keep theirs; their brackets are part of the answer.
- A list and a tuple agree where their elements do, in the order in which they are written.
- a \pm b is the list of its two values.
- A name is left out where only one side has it; two different names are left to algebra.

`same` says True or False where that is certain, None for the rest. Values are read by `formula`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from divtok.grade.maths.forms import Algebra, Form, Unread
from divtok.grade.maths.formula import Value, read_formula
from divtok.grade.maths.numbers import PlainNumber, read_number, same_number, without_unit

MAX_ELEMENTS = 50

LIST, SET = "list", "set"  # the other kinds are the brackets themselves: "()", "[)", ...
_OPENING = {"(": ")", "[": "]", "{": "}", r"\{": r"\}", r"\langle": r"\rangle"}
_PIECE = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_WORDS_BETWEEN = re.compile(r",?\s?\\text\{\s?(?:and|or)\s?\}|,?\s(?:and|or)\s|;", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?![\d])")
_NAME = re.compile(r"(?:[A-Za-z]|\\[a-z]+)(?:_(?:\w|\{\w+\}))?(?:\s?\(\s?[A-Za-z0-9]\s?\))?")
_SIGNS = re.compile(r"\\(pm|mp)(?![a-zA-Z])")
_ENDLESS = re.compile(r"([-+]?)\s?\\infty")


@dataclass(frozen=True, slots=True)
class Element:
    """One value as it is written, and the name it is given (x in x = 5)."""

    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    kind: str
    elements: tuple[Element, ...]


def same(gold: str, answer: str, *, inner: bool = False) -> bool | None:
    """Whether two normalised answers agree; None where this is not certain.

    An `inner` one stands in a list. One that is no list itself, as in ((1, 2)), is left to others.
    """
    try:
        left, right = read_shape(gold), read_shape(answer)
        return None if inner and LIST in (left.kind, right.kind) else _same(left, right)
    except Unread:
        return None


def read_shape(text: str) -> Shape:
    brackets, inside = _brackets(text.strip())
    elements = [_element(part) for part in _split(inside)]
    if len(elements) == 1 and brackets not in (SET,):
        brackets, elements = LIST, [_element(text)]
    if brackets in (LIST, SET):
        elements = [each for element in elements for each in _signs(element)]
        names = {element.name for element in elements if element.name}
        if brackets == LIST and len(names) == 1:  # x = 1, 2 names both
            elements = [Element(element.text, next(iter(names))) for element in elements]
    elif any(_SIGNS.search(element.text) for element in elements):
        raise Unread
    if len(elements) > MAX_ELEMENTS:
        raise Unread
    return Shape(brackets, tuple(elements))


def _same(gold: Shape, answer: Shape) -> bool | None:
    unordered = {gold.kind, answer.kind} <= {LIST, SET}
    mixed = LIST in (gold.kind, answer.kind) and "()" in (gold.kind, answer.kind)
    if not unordered and not mixed and gold.kind != answer.kind:
        return None
    if mixed and min(len(gold.elements), len(answer.elements)) < 2:
        return None
    compare = _Values()
    if unordered and not _one_sided_names(gold, answer):
        return _same_in_any_order(gold.elements, answer.elements, compare.same)
    if len(gold.elements) != len(answer.elements):
        return False if all(map(compare.reads, (*gold.elements, *answer.elements))) else None
    return _all(compare.same(*pair) for pair in zip(gold.elements, answer.elements, strict=True))


def _one_sided_names(gold: Shape, answer: Shape) -> bool:
    """x = 1, y = 2 against 1, 2: without the names only the order tells which is which."""
    left, right = ({e.name for e in shape.elements} for shape in (gold, answer))
    return (len(left) > 1 and right == {None}) or (len(right) > 1 and left == {None})


def _same_in_any_order(
    gold: tuple[Element, ...],
    answer: tuple[Element, ...],
    same_element: Callable[[Element, Element], bool | None],
) -> bool | None:
    table = [[same_element(one, other) for other in answer] for one in gold]
    columns = list(zip(*table, strict=True))
    if all(True in row for row in table) and all(True in column for column in columns):
        return True
    lines = [*table, *columns]
    # One value that certainly equals none of the others is enough.
    return False if any(all(cell is False for cell in line) for line in lines) else None


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    found = list(verdicts)
    if False in found:
        return False
    return None if None in found else True


class _Values:
    """Compares elements, each of them read once."""

    def __init__(self) -> None:
        self._read: dict[str, Value | None] = {}
        self._algebra = Algebra()

    def reads(self, element: Element) -> bool:
        return self._value(element.text) is not None

    def same(self, gold: Element, answer: Element) -> bool | None:
        if gold.name and answer.name and gold.name != answer.name:
            return None
        if "," in gold.text or "," in answer.text:  # a list of tuples
            return same(gold.text, answer.text, inner=True)
        left, right = _endless(gold.text), _endless(answer.text)
        if left or right:
            return left == right if left and right else None
        number, other = read_number(gold.text), read_number(answer.text)
        if number is not None and other is not None:
            return same_number(number, other)
        value, given = self._value(gold.text), self._value(answer.text)
        if value is None or given is None:
            return None
        try:
            return self._same_values(value, given)
        except Unread:
            return None

    def _value(self, text: str) -> Value | None:
        if text not in self._read:
            try:
                self._read[text] = read_formula(self._algebra, without_unit(text))
            except Unread:
                self._read[text] = None
        return self._read[text]

    def _same_values(self, gold: Value, answer: Value) -> bool | None:
        if isinstance(gold, Form) and isinstance(answer, Form):
            return self._same_forms(gold, answer)
        if isinstance(gold, Form) or isinstance(answer, Form):
            return None
        if [len(row) for row in gold] != [len(row) for row in answer]:
            return None  # a row may stand for a column
        cells = zip(sum(gold, ()), sum(answer, ()), strict=True)
        return _all(self._same_forms(*pair) for pair in cells)

    def _same_forms(self, gold: Form, answer: Form) -> bool | None:
        if self._algebra.same(gold, answer):
            return True
        left, right = gold.rational, answer.rational
        if left is not None and right is not None:
            return same_number(
                PlainNumber(left, gold.decimal, percent=False),
                PlainNumber(right, answer.decimal, percent=False),
            )
        # A decimal may be a value that was rounded; what is loose may be equal all the same.
        unsure = gold.decimal or answer.decimal or gold.loose or answer.loose
        return None if unsure else False


def _endless(text: str) -> str | None:
    match = _ENDLESS.fullmatch(text.strip())
    return None if match is None else "-" if match[1] == "-" else "+"


def _element(text: str) -> Element:
    sides = text.split("=")
    if len(sides) == 2 and _NAME.fullmatch(sides[0].strip()) and sides[1].strip():
        return Element(sides[1].strip(), sides[0].replace(" ", ""))
    if len(sides) > 1:
        raise Unread
    return Element(text.strip())


def _signs(element: Element) -> list[Element]:
    r"""Both values of a \pm b; \mp is the other sign of the same choice."""
    signs = [match[1] for match in _SIGNS.finditer(element.text)]
    if not signs:
        return [element]
    if signs.count("pm") != 1:  # two of them may be two choices or one
        raise Unread
    upper = _SIGNS.sub(lambda found: "+" if found[1] == "pm" else "-", element.text)
    lower = _SIGNS.sub(lambda found: "-" if found[1] == "pm" else "+", element.text)
    return [Element(upper.strip(), element.name), Element(lower.strip(), element.name)]


def _brackets(text: str) -> tuple[str, str]:
    """The outer brackets, if one pair holds all of the text, and what is inside."""
    pieces = _PIECE.findall(text)
    if len(pieces) < 3 or pieces[0] not in _OPENING:
        return LIST, text
    opening, closing = pieces[0], pieces[-1]
    if not _closes_last(pieces):
        return LIST, text
    inside = "".join(pieces[1:-1])
    if opening == r"\{" and closing == r"\}":
        return SET, inside
    if opening in "([" and closing in ")]":
        return opening + closing, inside
    if opening == r"\langle":
        return opening, inside
    return LIST, text


def _closes_last(pieces: list[str]) -> bool:
    depth = 0
    for place, piece in enumerate(pieces):
        if piece in _OPENING:
            depth += 1
        elif piece in _OPENING.values():
            depth -= 1
        if depth == 0:
            return place == len(pieces) - 1
    return False


def _split(text: str) -> list[str]:
    """The parts between commas and the words "and" and "or", outside of all brackets."""
    text = _WORDS_BETWEEN.sub(", ", text)
    if _THOUSANDS.search(text):  # 100,200 may be one number or two
        raise Unread
    parts: list[str] = [""]
    depth = 0
    for piece in _PIECE.findall(text):
        depth += (piece in _OPENING) - (piece in _OPENING.values())
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    if any(not part.strip() for part in parts):
        raise Unread
    return parts
