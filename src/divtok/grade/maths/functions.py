r"""Roots, powers, logarithms and angles of exact values, worked out where the result is exact.

What has no such result stays whole, as a function of the form inside it; see `forms`.
"""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial

from divtok.grade.maths.forms import (
    EULER,
    IMAGINARY,
    ONE,
    PI,
    Algebra,
    Form,
    Product,
    Unread,
    atom,
    prime_powers,
    rational,
)

MAX_FACTORIAL = 500
ANGLES = frozenset({"sin", "cos", "tan", "cot", "sec", "csc"})
KEPT_WHOLE = frozenset({"arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"})
LOGARITHMS = frozenset({"ln", "log"})
NAMES = ANGLES | KEPT_WHOLE | LOGARITHMS | {"exp"}

_HALF = Fraction(1, 2)
# cos(k pi / 12) as (rational factor, what it is the root of), up to a quarter turn.
_COSINES = {0: (Fraction(1), 1), 2: (_HALF, 3), 3: (_HALF, 2), 4: (_HALF, 1), 6: (Fraction(0), 1)}


def apply(algebra: Algebra, name: str, inside: Form) -> Form:
    """The function called `name` of a value; `name` is one of NAMES."""
    if name == "exp":
        return power(algebra, atom(EULER), inside)
    if name in LOGARITHMS:
        return logarithm(algebra, inside, name)
    if name in ANGLES:
        found = _of_angle(algebra, name, inside)
        if found is not None:
            return found
    return _whole(name, inside)


def power(algebra: Algebra, base: Form, exponent: Form) -> Form:
    number = exponent.rational
    if number is not None and number.denominator == 1:
        if abs(number) > 10_000:
            raise Unread
        return algebra.whole_power(base, int(number))
    if number is not None:
        return _root_of(algebra, base, number)
    if base == atom(EULER):
        turn = _half_turns(algebra, algebra.divide(exponent, atom(IMAGINARY)))
        cosine = None if turn is None else _cosine(algebra, turn)
        sine = None if turn is None else _cosine(algebra, turn - _HALF)
        if cosine is not None and sine is not None:
            return algebra.add(cosine, algebra.multiply(atom(IMAGINARY), sine))
    return atom(("power", base.key, exponent.key), loose=True)


def root(algebra: Algebra, degree: Form, inside: Form) -> Form:
    number = degree.rational
    if number is None or number.denominator != 1 or not 2 <= number <= 100:
        raise Unread
    value = inside.rational
    if value is not None and value < 0:
        if number == 2:
            positive = _root_of(algebra, algebra.negative(inside), _HALF)
            return algebra.multiply(atom(IMAGINARY), positive)
        if number % 2 == 1:  # of the three cube roots of -8, the real one is meant
            return algebra.negative(_root_of(algebra, algebra.negative(inside), 1 / number))
    return _root_of(algebra, inside, 1 / number)


def logarithm(algebra: Algebra, inside: Form, name: str = "ln") -> Form:
    """ln, or log of a base that is not said, as a sum over primes; log_b is a quotient of two."""
    number = inside.rational
    loose = name == "log"  # its base may be 10 or e
    if number is not None and number > 0:
        total = rational(0)
        for part, sign in ((number.numerator, 1), (number.denominator, -1)):
            for prime, count in prime_powers(part).items():
                term = atom((name, prime), loose=loose)
                total = algebra.add(total, algebra.multiply(rational(sign * count), term))
        return total
    if name == "ln" and len(inside.top) == 1 and inside.bottom == {ONE: Fraction(1)}:
        [(product, factor)] = inside.top.items()
        if factor == 1 and [part for part, _ in product] == [EULER]:
            return rational(product[0][1])
    return _whole(name, inside)


def absolute(algebra: Algebra, inside: Form) -> Form:
    number = inside.rational
    if number is not None:
        return rational(abs(number), decimal=inside.decimal)
    # |x - y| and |y - x| are one value.
    other = algebra.negative(inside)
    return _whole("abs", min(inside, other, key=lambda form: repr(form.key)))


def factorial_of(inside: Form) -> Form:
    number = inside.rational
    if number is None or number.denominator != 1 or not 0 <= number <= MAX_FACTORIAL:
        raise Unread
    return rational(factorial(int(number)))


def choices(top: Form, bottom: Form) -> Form:
    n, k = top.rational, bottom.rational
    if n is None or k is None or n.denominator != 1 or k.denominator != 1:
        raise Unread
    if not 0 <= n <= MAX_FACTORIAL or not 0 <= k <= n:
        raise Unread
    return rational(comb(int(n), int(k)))


def _whole(name: str, inside: Form) -> Form:
    return atom((name, inside.key), loose=True)


def _root_of(algebra: Algebra, base: Form, exponent: Fraction) -> Form:
    """A power that is not whole, of what is positive wherever the power is defined."""
    if not base.top:
        if exponent <= 0:
            raise Unread
        return base
    if len(base.top) != 1 or base.bottom != {ONE: Fraction(1)}:
        return atom(("power", base.key, exponent), loose=True)
    [(product, factor)] = base.top.items()
    if factor < 0 or not _is_positive(product):
        return atom(("power", base.key, exponent), loose=True)
    result = rational(1, decimal=base.decimal)
    for part, sign in ((factor.numerator, 1), (factor.denominator, -1)):
        for prime, count in _roots_first(part, exponent).items():
            result = algebra.multiply(result, _prime(prime, sign * count * exponent))
    for name, count in product:
        exact = _prime(name, count * exponent) if isinstance(name, int) else None
        result = algebra.multiply(result, exact or atom(name, count * exponent))
    return Form(result.top, result.bottom, base.decimal or result.decimal, base.loose)


def _roots_first(number: int, exponent: Fraction) -> dict[int, int]:
    """Prime factors, also of a large square such as 1000003^2, whose root is small."""
    try:
        return prime_powers(number)
    except Unread:
        degree = exponent.denominator
        near = round(number ** (1 / degree)) if number.bit_length() < 500 else 0
        for candidate in (near - 1, near, near + 1):
            if candidate > 1 and candidate**degree == number:
                return {prime: degree * n for prime, n in prime_powers(candidate).items()}
        raise


def _prime(prime: int, exponent: Fraction) -> Form:
    whole = exponent.numerator // exponent.denominator
    rest = exponent - whole
    if abs(whole) * prime.bit_length() > 4_096:
        raise Unread
    scale = Fraction(prime) ** whole
    return Form({((prime, rest),): scale}) if rest else rational(scale)


def _is_positive(product: Product) -> bool:
    """Whether its parts may be rooted one by one: positive numbers, and at most one variable."""
    variables = [
        name for name, _ in product if not isinstance(name, int) and name not in (PI, EULER)
    ]
    if not variables:
        return True
    [(_, count), *_] = [part for part in product if part[0] == variables[0]]
    plain = isinstance(variables[0], str) and variables[0] != IMAGINARY
    return len(variables) == 1 and plain and count == 1


def _half_turns(algebra: Algebra, angle: Form) -> Fraction | None:
    """The angle as a rational multiple of pi."""
    return algebra.divide(angle, atom(PI)).rational


def _cosine(algebra: Algebra, half_turns: Fraction) -> Form | None:
    """The cosine of a multiple of pi, where it is a root of a rational number."""
    twelfths = half_turns * 12
    if twelfths.denominator != 1:
        return None
    place = int(twelfths) % 24
    place = min(place, 24 - place)
    sign = 1
    if place > 6:
        place, sign = 12 - place, -1
    if place not in _COSINES:
        return None
    factor, inside = _COSINES[place]
    return algebra.multiply(rational(sign * factor), _root_of(algebra, rational(inside), _HALF))


def _of_angle(algebra: Algebra, name: str, angle: Form) -> Form | None:
    turn = _half_turns(algebra, angle)
    if turn is None:
        return None
    cosine, sine = _cosine(algebra, turn), _cosine(algebra, turn - _HALF)
    if cosine is None or sine is None:
        return None
    one = rational(1)
    top, bottom = {
        "sin": (sine, one),
        "cos": (cosine, one),
        "tan": (sine, cosine),
        "cot": (cosine, sine),
        "sec": (one, cosine),
        "csc": (one, sine),
    }[name]
    return algebra.divide(top, bottom)
