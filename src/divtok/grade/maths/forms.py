r"""Exact values in one form each, so that equal values are equal as data.

A form is a fraction of two sums; a sum maps products of powers to rational factors. The powers are
of primes (2^{1/2}, between 0 and 1), of i (at most 1), and of what has no relation to the others:
pi, e, logarithms of primes and variables. Radicals of different primes are independent, so two
such forms differ only where the values differ. What is kept whole because its relations are not
known (sin x, a root of a sum) makes a form `loose`: equal forms are then still equal values, but
different forms say nothing.

Nothing is rounded here, and work is counted: what takes too much is `Unread`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

MAX_BITS = 8_192  # of any number
MAX_WORK = 20_000  # products of terms for one answer
MAX_POWER = 64  # of a sum
MAX_PRIME = 1_000  # tried as a factor

# A prime, the name of a constant or variable, or a function with what it is applied to.
Atom: TypeAlias = "int | str | tuple[object, ...]"
Product: TypeAlias = "tuple[tuple[Atom, Fraction], ...]"
Sum: TypeAlias = "dict[Product, Fraction]"

ONE: Product = ()
IMAGINARY, EULER, PI = "i", "e", "pi"


class Unread(Exception):
    """Not a value that is read here. Caught where two answers are compared, never shown."""


@dataclass(frozen=True, slots=True)
class Form:
    """`top / bottom`; `decimal` where it was written with a decimal point."""

    top: Sum
    bottom: Sum = field(default_factory=lambda: {ONE: Fraction(1)})
    decimal: bool = False
    loose: bool = False

    @property
    def rational(self) -> Fraction | None:
        if not self.top:
            return Fraction(0)
        if set(self.top) != {ONE} or set(self.bottom) != {ONE}:
            return None
        return self.top[ONE] / self.bottom[ONE]

    @property
    def key(self) -> tuple[object, ...]:
        """The same for the same form, to stand for it inside a function."""
        return tuple(tuple(sorted(part.items(), key=repr)) for part in (self.top, self.bottom))


def rational(value: Fraction | int, *, decimal: bool = False) -> Form:
    value = Fraction(value)
    check_size(value)
    return Form({ONE: value} if value else {}, decimal=decimal)


def atom(name: Atom, power: Fraction | int = 1, *, loose: bool = False) -> Form:
    return Form({((name, Fraction(power)),): Fraction(1)}, loose=loose)


def check_size(value: Fraction) -> None:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise Unread


class Algebra:
    """Arithmetic of forms. One for each comparison, because it counts the work."""

    def __init__(self) -> None:
        self._work = 0

    def add(self, left: Form, right: Form) -> Form:
        if left.bottom == right.bottom:
            top, bottom = _sum(left.top, right.top), left.bottom
        else:
            top = _sum(self._product(left.top, right.bottom), self._product(right.top, left.bottom))
            bottom = self._product(left.bottom, right.bottom)
        return self._form(top, bottom, left, right)

    def multiply(self, left: Form, right: Form) -> Form:
        top = self._product(left.top, right.top)
        return self._form(top, self._product(left.bottom, right.bottom), left, right)

    def divide(self, left: Form, right: Form) -> Form:
        if not right.top:
            raise Unread
        top = self._product(left.top, right.bottom)
        return self._form(top, self._product(left.bottom, right.top), left, right)

    def negative(self, value: Form) -> Form:
        return self.multiply(rational(-1), value)

    def whole_power(self, base: Form, power: int) -> Form:
        if power < 0:
            return self.whole_power(self.divide(rational(1), base), -power)
        if (number := base.rational) is not None:
            size = max(number.numerator.bit_length(), number.denominator.bit_length())
            if size * power > MAX_BITS:
                raise Unread
            return rational(number**power, decimal=base.decimal)
        if power > MAX_POWER and len(base.top) + len(base.bottom) > 2:
            raise Unread
        result, square = rational(1), base
        while power:
            if power & 1:
                result = self.multiply(result, square)
            power >>= 1
            if power:
                square = self.multiply(square, square)
        return result

    def same(self, left: Form, right: Form) -> bool:
        """Whether two forms are equal; where not, and neither is loose, the values differ."""
        cross = self._product(left.top, right.bottom)
        return cross == self._product(right.top, left.bottom)

    def _form(self, top: Sum, bottom: Sum, *made_of: Form) -> Form:
        if len(bottom) == 1 and ONE not in bottom:
            top, bottom = self._product(top, _inverse(bottom)), {ONE: Fraction(1)}
        elif len(bottom) == 1 and bottom[ONE] != 1:
            scale = bottom[ONE]
            top, bottom = {key: factor / scale for key, factor in top.items()}, {ONE: Fraction(1)}
        return Form(
            top,
            bottom,
            any(form.decimal for form in made_of),
            any(form.loose for form in made_of),
        )

    def _product(self, left: Sum, right: Sum) -> Sum:
        self._work += len(left) * len(right)
        if self._work > MAX_WORK:
            raise Unread
        result: Sum = {}
        for one, one_factor in left.items():
            for other, other_factor in right.items():
                product, scale = _joined(one, other)
                factor = result.get(product, Fraction(0)) + one_factor * other_factor * scale
                check_size(factor)
                result[product] = factor
        return {product: factor for product, factor in result.items() if factor}


def _sum(left: Sum, right: Sum) -> Sum:
    result = dict(left)
    for product, factor in right.items():
        result[product] = result.get(product, Fraction(0)) + factor
    return {product: factor for product, factor in result.items() if factor}


def _inverse(one_term: Sum) -> Sum:
    [(product, factor)] = one_term.items()
    inverted, scale = _reduced({name: -power for name, power in product})
    return {inverted: scale / factor}


def _joined(left: Product, right: Product) -> tuple[Product, Fraction]:
    if not left or not right:
        return left or right, Fraction(1)
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, Fraction(0)) + power
    return _reduced(powers)


def _reduced(powers: dict[Atom, Fraction]) -> tuple[Product, Fraction]:
    """A product in its one spelling, and the rational factor that came out of it."""
    scale = Fraction(1)
    kept: list[tuple[Atom, Fraction]] = []
    for name, power in powers.items():
        if isinstance(name, int):
            whole = power.numerator // power.denominator
            scale *= bounded_power(name, whole)
            power -= whole
        elif name == IMAGINARY:
            quarter = int(power) % 4
            scale *= -1 if quarter >= 2 else 1
            power = Fraction(quarter % 2)
        if power:
            kept.append((name, power))
    return tuple(sorted(kept, key=repr)), scale


def bounded_power(base: int, power: int) -> Fraction:
    if abs(power) * base.bit_length() > MAX_BITS:
        raise Unread
    return Fraction(base) ** power


def prime_powers(number: int) -> dict[int, int]:
    """The prime factors of a positive number; Unread where one of them is hard to find."""
    found: dict[int, int] = {}
    prime = 2
    while prime * prime <= number and prime < MAX_PRIME:
        while number % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            number //= prime
        prime += 1 if prime == 2 else 2
    if number > MAX_PRIME**2:
        raise Unread
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found
