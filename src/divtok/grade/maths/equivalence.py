r"""Is an answer the same as the gold answer? The rules that need no computer algebra.

`decide` settles what exact rules can settle (equal strings, plain numbers, words, choice letters,
numerals with a base, formulas and lists of them that are read for certain) and says what must not
be parsed at all. It returns None for the rest, which the symbolic comparison in a worker process
takes on. It is safe on any input and starts nothing.
"""

from __future__ import annotations

import re

from divtok.grade.judgement import CORRECT, Judgement
from divtok.grade.maths.caps import too_complex, too_long
from divtok.grade.maths.normalize import fold_words, normalize, plain_words, squeeze
from divtok.grade.maths.numbers import (
    read_based_number,
    read_number,
    read_stated_number,
    same_number,
)
from divtok.grade.maths.shapes import same as same_shape
from divtok.grade.maths.unread import different
from divtok.protocols.boxed import BOX_COMMAND, find_boxed
from divtok.records import Verdict

# "(B) 34", "\text{(B)} 34", "B. 34", "B": a choice letter, alone or with the value it stands for.
_CHOICE = re.compile(
    r"(?:\\text\{\s?\(?(?P<text>[A-J])\)?[.:]?\s?\}\s?|\((?P<round>[A-J])\)(?:\s|$)"
    r"|(?P<bare>[A-J])(?:[.:)]\s|$))(?P<value>.*)",
    re.DOTALL,
)

_DOLLAR = re.compile(r"(?<!\\)\$")


def decide(*, gold: str, answer: str) -> Judgement | None:
    """The judgement where exact rules settle it, None where algebra is needed."""
    for text, name in ((gold, "gold"), (answer, "answer")):
        if reason := too_long(text, name):
            return Judgement(Verdict.UNDETERMINED, reason)
    written = gold, answer
    gold, answer = prepare(gold=gold, answer=answer)
    if squeeze(gold) == squeeze(answer):
        return CORRECT
    for text, name in ((gold, "gold"), (answer, "answer")):
        if reason := too_complex(text, name):
            return Judgement(Verdict.UNDETERMINED, reason)
    for same in (_same_choice, _same_based_number, _same_plain_number, _same_words, same_shape):
        if (verdict := same(gold, answer)) is not None:
            return CORRECT if verdict else different(gold=written[0], answer=written[1])
    return None


def prepare(*, gold: str, answer: str) -> tuple[str, str]:
    """Both sides in one spelling, without what only one of them says besides the value."""
    gold, answer = normalize(_unboxed(gold)), normalize(_unboxed(answer))
    left, right = _CHOICE.fullmatch(gold), _CHOICE.fullmatch(answer)
    # "(B) 34" against "34": only the values can be compared.
    if left is not None and right is None:
        gold = left["value"].strip() or gold
    if right is not None and left is None:
        answer = right["value"].strip() or answer
    return gold, answer


def _unboxed(text: str) -> str:
    """The boxed part, where a text has exactly one box; several boxes may be a list of values."""
    if len(BOX_COMMAND.findall(text)) != 1:
        return text
    box = find_boxed(text)
    # A box is in math mode already: a dollar sign inside it only leaves and re-enters that mode.
    return text if box is None else _DOLLAR.sub(" ", box.content)


def _same_choice(gold: str, answer: str) -> bool | None:
    left, right = _CHOICE.fullmatch(gold), _CHOICE.fullmatch(answer)
    if left is None or right is None:
        return None
    return _letter(left) == _letter(right)


def _letter(choice: re.Match[str]) -> str:
    return choice["text"] or choice["round"] or choice["bare"]


def _same_based_number(gold: str, answer: str) -> bool | None:
    left, right = read_based_number(gold), read_based_number(answer)
    if left is not None and right is not None:
        return left == right
    # Where one side leaves the base to the question, the digits as written must agree.
    if left is not None:
        return _same_digits(left.digits, answer)
    return None if right is None else _same_digits(right.digits, gold)


def _same_digits(digits: str, bare: str) -> bool | None:
    bare = squeeze(bare).replace(",", "")
    return digits == (bare.lstrip("0") or "0") if bare.isalnum() else None


def _same_plain_number(gold: str, answer: str) -> bool | None:
    left, right = read_number(gold), read_number(answer)
    if left is not None and right is not None:
        return same_number(left, right)
    if left is not None and (stated := read_stated_number(answer)) is not None:
        return True if same_number(left, stated) else None
    return None


def _same_words(gold: str, answer: str) -> bool | None:
    """Words in a text command against words: equal or not, letter case aside."""
    left, right = plain_words(gold), plain_words(answer)
    if left is None and right is None:
        return None
    left, right = fold_words(left or gold), fold_words(right or answer)
    if left == right:
        return True if left else None
    # Bare letters may be a product of variables, and digits a value: leave those to algebra.
    return False if left.isalpha() and right.isalpha() and min(len(left), len(right)) > 1 else None
