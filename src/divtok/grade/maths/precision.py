"""Second look at two parsed answers: are their numbers the same size, and can they be computed?

math-verify rounds to six places and drops what is smaller than 1e-15, so any two tiny numbers are
equal to it. `agree` evaluates both sides to thirty digits and compares relative to their size.
Imported by the worker only.
"""

from __future__ import annotations

import math
from typing import Any

import sympy
from math_verify.grader import sort_key

from divtok.grade.maths.numbers import RELATIVE_TOLERANCE

EXACT_TOLERANCE = 1e-12
WORKING_DIGITS = 30
FAR_DIGITS = 200
MAX_EXPONENT_BITS = 1000
# Kept as they are written until they are asked for a value.
UNDONE = (sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative)
# What sympy raises for expressions that have no value it could compute.
NO_VALUE = (TypeError, ValueError, ArithmeticError, AttributeError, NotImplementedError)


def bits(expression: Any) -> float:
    """An upper estimate of the bits needed to compute the numbers in it, before computing any."""
    if isinstance(expression, sympy.MatrixBase):
        return max((bits(entry) for entry in expression.flat()), default=0.0)
    if not isinstance(expression, sympy.Basic):
        return 0.0
    if isinstance(expression, sympy.Rational):
        return float(max(abs(expression.p).bit_length(), expression.q.bit_length()))
    if isinstance(expression, sympy.Float):
        return max(1.0, math.log2(abs(expression) + 1)) if expression.is_finite else 1.0
    if isinstance(expression, sympy.Pow) and expression.is_number:
        return max(1.0, bits(expression.base)) * max(1.0, _size(expression.exp))
    if isinstance(expression, sympy.factorial) and expression.is_number:
        size = _size(expression.args[0])
        return size * max(1.0, math.log2(size + 1))
    return sum((bits(argument) for argument in expression.args), start=1.0)


def agree(gold_readings: list[Any], answer_readings: list[Any]) -> bool:
    """Whether two answers that math-verify takes for equal survive a comparison at full precision.

    Anything that has no value to compute (words, sets without elements) keeps its equality.
    """
    if not gold_readings or not answer_readings:
        return True
    return _agree(gold_readings[0], answer_readings[0])


def agree_as_complex(gold_readings: list[Any], answer_readings: list[Any]) -> bool:
    """Whether two answers with the letter i are equal where it stands for the imaginary unit."""
    if not gold_readings or not answer_readings:
        return False
    sides = [gold_readings[0], answer_readings[0]]
    if not all(isinstance(side, sympy.Expr) for side in sides):
        return False
    if not any(_letter_i(side) for side in sides):
        return False
    values = [_value(side.subs(dict.fromkeys(_letter_i(side), sympy.I))) for side in sides]
    return None not in values and _alike(values[0], values[1], EXACT_TOLERANCE)


def agree_when_done(gold_readings: list[Any], answer_readings: list[Any]) -> bool | None:
    """Whether two answers with sums, integrals or limits in them have the same value; None where
    they have none that can be worked out."""
    sides = [*gold_readings[:1], *answer_readings[:1]]
    if len(sides) < 2 or not all(isinstance(side, sympy.Expr) for side in sides):
        return None
    try:
        values = [_value(side.doit()) for side in sides]
    except NO_VALUE:
        return None
    return None if None in values else _alike(values[0], values[1], EXACT_TOLERANCE)


def _letter_i(expression: Any) -> list[Any]:
    return [symbol for symbol in expression.free_symbols if symbol.name == "i"]


def _agree(gold: Any, answer: Any) -> bool:
    left, right = _parts(gold), _parts(answer)
    if left is not None and right is not None:
        if len(left) != len(right):  # equal as sets, one of them with repetitions
            return True
        return all(_agree(a, b) for a, b in zip(left, right, strict=True))
    if not isinstance(gold, sympy.Expr) or not isinstance(answer, sympy.Expr):
        return True
    # Percentages are kept unevaluated so that 28% may equal 28; their size says nothing.
    if gold.has(sympy.UnevaluatedExpr) or answer.has(sympy.UnevaluatedExpr):
        return True
    values = _value(gold), _value(answer)
    if values[0] is None or values[1] is None:
        return True
    rounded = gold.has(sympy.Float) or answer.has(sympy.Float)
    tolerance = float(RELATIVE_TOLERANCE) if rounded else EXACT_TOLERANCE
    if not _alike(values[0], values[1], tolerance):
        return False
    return rounded or not _differ_far_behind(gold, answer)


def _differ_far_behind(gold: Any, answer: Any) -> bool:
    """Whether two exact numbers that agree to thirty digits are different all the same."""
    if not gold.is_number or not answer.is_number:
        return False
    try:
        rest = sympy.N(gold - answer, 5, maxn=FAR_DIGITS)
    except NO_VALUE:
        return False
    # A sum that cancelled as far as it was worked out has a precision of one bit.
    return bool(rest.is_number and rest != 0 and getattr(rest, "_prec", 1) > 1)


def _alike(gold: Any, answer: Any, tolerance: float) -> bool:
    return bool(abs(gold - answer) <= tolerance * max(abs(gold), abs(answer)))


def _parts(value: Any) -> list[Any] | None:
    """The elements of a list-like answer, sets in a common order."""
    if isinstance(value, sympy.MatrixBase):
        return list(value.flat())
    if isinstance(value, sympy.Tuple):
        return list(value.args)
    if isinstance(value, sympy.FiniteSet):
        return sorted(value.args, key=sort_key)
    if isinstance(value, sympy.Interval):
        return [value.start, value.end]
    return None


def _value(expression: Any) -> Any:
    """The value to WORKING_DIGITS digits, at one fixed odd point where there are variables."""
    point = {
        symbol: sympy.Rational(1009 + 97 * index, 613)
        for index, symbol in enumerate(sorted(expression.free_symbols, key=str))
    }
    try:
        value = sympy.N(expression.subs(point), WORKING_DIGITS)
    except NO_VALUE:
        return None
    if not value.is_number or not value.is_finite:
        return None
    # sympy marks a sum that cancelled completely by a precision of one bit.
    return sympy.Integer(0) if getattr(value, "_prec", WORKING_DIGITS) == 1 else value


def _size(number: Any) -> float:
    """Its absolute value, infinite where even computing that would be too much."""
    if bits(number) > MAX_EXPONENT_BITS:
        return math.inf
    try:
        size = abs(sympy.N(number, 5))
    except NO_VALUE:
        return math.inf
    return float(size) if size.is_finite else math.inf
