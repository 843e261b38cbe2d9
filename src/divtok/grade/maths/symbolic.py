r"""Compare two answers by computer algebra: math-verify parses and verifies, and is double-checked.

This runs in a worker process only. It imports sympy and math-verify, has no time limit of its own
(the pool kills a worker that takes too long), and changes them for its whole process: no string can
be evaluated as Python here, and no exhausted resource is swallowed unseen. What math-verify accepts
is checked once more at full precision, because it compares rounded values; what it could not finish
is undetermined rather than incorrect.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import math_verify.grader
import math_verify.parser
import sympy
import sympy.parsing.sympy_parser
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.function import AppliedUndef
from sympy.core.sympify import SympifyError

from divtok.grade.judgement import CORRECT, INCORRECT, Judgement, undetermined
from divtok.grade.maths.equivalence import prepare
from divtok.grade.maths.precision import UNDONE, agree, agree_as_complex, agree_when_done, bits
from divtok.grade.maths.unread import different, leaves_a_gap, says_no_value, unread
from divtok.protocols.boxed import BOX_COMMAND

MAX_BITS = 2.0**22  # more than a million decimal digits

_NUMBER_TEXT = re.compile(r"\d+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d{1,4})?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_MATH_INSIDE = re.compile(rf"\$|\\\(|\\\[|{BOX_COMMAND.pattern}")
_BASES = re.compile(r"\d_(\d|\{\d{1,2}\})")
# Only the LaTeX reading: math-verify's other one hands the text to Python's eval.
_EXTRACTION = [LatexExtractionConfig()]
_exhausted: list[str] = []


def compare(*, gold: str, answer: str) -> Judgement:
    """Correct, incorrect, or undetermined with the reason."""
    written = gold, answer
    gold, answer = prepare(gold=gold, answer=answer)
    _exhausted.clear()
    gold_readings, answer_readings = _read(gold), _read(answer)
    for readings, name in ((gold_readings, "gold"), (answer_readings, "answer")):
        if any(bits(reading) > MAX_BITS for reading in readings):
            return undetermined("too_complex", f"{name} holds a number too large to compute")
    same = verify(
        gold_readings, answer_readings, allow_set_relation_comp=True, timeout_seconds=None
    )
    if same and _bases_agree(gold, answer) and agree(gold_readings, answer_readings):
        return CORRECT
    if _exhausted:
        why = f"the comparison ran out of resources ({_exhausted[0]})"
        return undetermined("out_of_resources", why)
    judgement = different(gold=written[0], answer=written[1])
    if judgement is not INCORRECT:
        return judgement
    if leaves_a_gap(gold) or not _is_read(gold, gold_readings):
        return unread("gold")
    if not _is_read(answer, answer_readings):
        return unread("answer")
    if any(isinstance(r, sympy.Basic) and r.has(*UNDONE) for r in gold_readings + answer_readings):
        same = agree_when_done(gold_readings, answer_readings)
        if same is None:
            return undetermined("unread", "a sum, an integral or a limit could not be worked out")
        if same:
            return CORRECT
    if agree_as_complex(gold_readings, answer_readings):
        return CORRECT
    return INCORRECT


def _is_read(text: str, readings: list[Any]) -> bool:
    """Whether all of a text has a meaning to sympy, as far as it has any meaning."""
    expressions = [reading for reading in readings if isinstance(reading, sympy.Basic)]
    if all(isinstance(reading, str) for reading in readings):
        return says_no_value(text)
    # In an equation only the side with the value counts: f(2) = 5 says what f(2) is.
    values = [found.rhs if isinstance(found, sympy.Eq) else found for found in expressions]
    return not any(
        value.has(sympy.Intersection)
        or any(not call.free_symbols for call in value.atoms(AppliedUndef))
        for value in values
    )


def secure() -> None:
    """Close this process for strings as code, and make exhausted resources visible. Call once."""
    logging.disable(logging.CRITICAL)  # math-verify warns that it runs without its own time limit
    sympy.parsing.sympy_parser.parse_expr = _read_word
    sympy.parsing.sympy_parser.eval_expr = _refuse
    math_verify.parser.latex2sympy = _noticing(math_verify.parser.latex2sympy)
    math_verify.grader.simplify = _noticing(math_verify.grader.simplify)
    math_verify.grader.solve = _noticing(math_verify.grader.solve)


def _read(text: str) -> list[Any]:
    """Sympy objects and, last, the text they were read from; math-verify's own list."""
    if not _MATH_INSIDE.search(text):
        text = f"${text}$"
    return parse(text, _EXTRACTION, parsing_timeout=0)


def _bases_agree(gold: str, answer: str) -> bool:
    """The parser drops the base of a numeral; where both sides give bases, they must be equal."""
    left, right = _BASES.findall(gold), _BASES.findall(answer)
    return not left or not right or [b.strip("{}") for b in left] == [b.strip("{}") for b in right]


def _read_word(text: str, *_: object, **__: object) -> Any:
    """Stands in for sympy's parse_expr, which sympy itself calls for the digits of a number or for
    a name in its own tables. One number or one name is read; anything else is refused."""
    if _NAME.fullmatch(text):
        return sympy.Symbol(text)
    if not _NUMBER_TEXT.fullmatch(text):
        raise SympifyError(text)
    return sympy.Integer(int(text)) if text.isdecimal() else sympy.Float(text)


def _refuse(code: str, *_: object, **__: object) -> Any:
    raise SympifyError(code)


def _noticing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, noting when it runs out of stack or memory: its callers swallow every error."""

    def noticed(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (RecursionError, MemoryError) as error:
            _exhausted.append(type(error).__name__)
            raise

    return noticed
