r"""Random exact values, each with several spellings, and values that are certainly others.

A value is built together with its text, so what is equal is known without reading any text: a
spelling only changes layout, or rewrites a part by a rule of arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

Spellings = list[str]


def fraction_spellings(value: Fraction, rng: random.Random) -> Spellings:
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    k = rng.randint(2, 9)
    found = [
        f"{sign}{top}/{bottom}",
        rf"{sign}\frac{{{top}}}{{{bottom}}}",
        rf"{sign}\dfrac{{{top * k}}}{{{bottom * k}}}",
        rf"\tfrac{{{sign}{top}}}{{{bottom}}}",
        rf"${sign} \frac {{ {top} }} {{ {bottom} }}$",
        rf"{sign}{top}\cdot\frac{{1}}{{{bottom}}}"
        if top != 1
        else rf"{sign}\frac{{1}}{{{bottom}}}",
        rf"x = {sign}\frac{{{top}}}{{{bottom}}}",
        rf"The answer is ${sign}\frac{{{top}}}{{{bottom}}}$.",
    ]
    if top < 10 and bottom < 10:
        found.append(rf"{sign}\frac{top}{bottom}")
    if top > bottom > 1:
        found.append(rf"{sign}{top // bottom}\frac{{{top % bottom}}}{{{bottom}}}")
    return found


def decimal_spellings(units: int, places: int) -> Spellings:
    """units * 10^-places, without trailing zeros in `units`."""
    sign, digits = "-" if units < 0 else "", str(abs(units)).rjust(places + 1, "0")
    whole, part = digits[: len(digits) - places], digits[len(digits) - places :]
    plain = f"{sign}{whole}.{part}" if part else f"{sign}{whole}"
    return [
        plain,
        f"{plain}0" if part else f"{plain}.0",
        f"${plain}$",
        rf"{sign}1.0e0 \cdot {abs(units)} \cdot 10^{{-{places}}}",
        f"{sign}{abs(units)}.0e-{places:02d}",
        f"{sign}{abs(units)}E-{places}",
        rf"{sign}{abs(units)} \times 10^{{-{places}}}",
        rf"{sign}\frac{{{abs(units)}}}{{{10**places}}}",
        rf"{plain} \text{{ units}}",
        rf"\left({plain}\right)",
    ]


def root_spellings(a: int, b: int, n: int, rng: random.Random) -> Spellings:
    """a + b sqrt(n), with n free of squares and b not 0."""
    sign, size, k = "-" if b < 0 else "+", abs(b), rng.randint(2, 5)
    times = "" if size == 1 else str(size)
    return [
        rf"{a}{sign}{times}\sqrt{{{n}}}",
        rf"{a} {sign} {times} \sqrt {{{n}}}",
        rf"{a}{sign}\sqrt{{{n * size * size}}}",
        rf"\frac{{{a * k}{sign}{size * k}\sqrt{{{n}}}}}{{{k}}}",
        rf"\left( {a} {sign} {size} \cdot {n}^{{1/2}} \right)",
        rf"{sign if sign == '-' else ''}{times}\sqrt{{{n}}}{a:+d}",
        rf"{a}{sign}\frac{{{size * n}}}{{\sqrt{{{n}}}}}",
    ]


def pi_spellings(value: Fraction, rng: random.Random) -> Spellings:
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    times, k = "" if top == 1 else str(top), rng.randint(2, 5)
    found = [
        rf"{sign}\frac{{{times}\pi}}{{{bottom}}}",
        rf"{sign}\frac{{{top}}}{{{bottom}}}\pi",
        rf"{sign}\dfrac{{{top * k} \pi}}{{{bottom * k}}}",
        rf"{sign}{times}\pi/{bottom}",
        rf"{sign}\pi \cdot \frac{{{top}}}{{{bottom}}}",
        rf"{sign}\frac{{{top}}}{{{bottom}}} π",
    ]
    return [*found, rf"{sign}\frac\pi{bottom}"] if top == 1 and bottom < 10 else found


def polynomial_spellings(a: int, b: int, c: int) -> Spellings:
    """a (x + b)(x + c), a positive."""
    middle, last = a * (b + c), a * b * c
    times = "" if a == 1 else str(a)
    return [
        rf"{times}(x{b:+d})(x{c:+d})",
        rf"{times}\left(x{c:+d}\right)\left(x{b:+d}\right)",
        f"{a}x^2{middle:+d}x{last:+d}",
        f"{last} {middle:+d} x + {a} x^{{2}}",
        rf"{a} \cdot x \cdot x {middle:+d}x{last:+d}",
        f"$ {a}x^2 {middle:+d}x {last:+d} $",
    ]


def list_spellings(values: list[int]) -> Spellings:
    """Different whole numbers as a set of answers."""
    back = values[::-1]
    return [
        ", ".join(map(str, values)),
        ", ".join(map(str, back)),
        r"\{" + ", ".join(map(str, back)) + r"\}",
        ", ".join(f"x = {value}" for value in values),
        ", ".join(map(str, back[:-1])) + rf" \text{{ and }} {back[-1]}",
    ]


def plus_minus_spellings(a: int, b: int, n: int) -> Spellings:
    """a + b sqrt(n) and a - b sqrt(n), b and n positive."""
    return [
        rf"{a} \pm {b}\sqrt{{{n}}}",
        rf"{a}+{b}\sqrt{{{n}}}, {a}-{b}\sqrt{{{n}}}",
        rf"{a}-{b}\sqrt{{{n}}}, {a}+{b}\sqrt{{{n}}}",
        rf"x = {a}\pm\sqrt{{{b * b * n}}}",
    ]


def complex_spellings(a: int, b: int) -> Spellings:
    sign, size = "-" if b < 0 else "+", abs(b)
    return [
        f"{a}{sign}{size}i",
        rf"{a} {sign} {size}\mathrm{{i}}",
        rf"{b}i{a:+d}",
        rf"{a}{sign}\sqrt{{-{size * size}}}",
        rf"-i({-b}{a:+d}i)",
    ]


def matrix_spellings(k: int, entries: list[int]) -> Spellings:
    a, b, c, d = entries
    e, f, g, h = (k * entry for entry in entries)
    return [
        rf"{k}\begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}",
        rf"\begin{{bmatrix}} {e} & {f} \\ {g} & {h} \end{{bmatrix}}",
        rf"\frac{{{2 * k}}}{{2}} \begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}",
    ]


def _different(rng: random.Random, low: int, high: int, but: int) -> int:
    return rng.choice([number for number in range(low, high + 1) if number != but])


def _fraction(rng: random.Random) -> tuple[Spellings, Spellings]:
    value = Fraction(rng.randint(-60, 60) or 7, rng.randint(2, 40))
    other = value + Fraction(rng.choice((-1, 1)), rng.choice((1, 7, 10**3, 10**31)))
    return fraction_spellings(value, rng), fraction_spellings(other, rng)


def _decimal(rng: random.Random) -> tuple[Spellings, Spellings]:
    units = rng.choice((-1, 1)) * (rng.randint(10, 9999) * 10 + rng.randint(1, 9))
    places = rng.randint(2, 8)
    return decimal_spellings(units, places), decimal_spellings(units, places + 1)


def _root(rng: random.Random) -> tuple[Spellings, Spellings]:
    n, a, b = rng.choice((2, 3, 5, 6, 7, 10)), rng.randint(1, 20), rng.choice((-3, -2, -1, 1, 4))
    return root_spellings(a, b, n, rng), root_spellings(a, -b, n, rng)


def _pi(rng: random.Random) -> tuple[Spellings, Spellings]:
    value = Fraction(rng.randint(1, 12), rng.randint(2, 12)) * rng.choice((-1, 1))
    return pi_spellings(value, rng), pi_spellings(value * 2, rng)


def _polynomial(rng: random.Random) -> tuple[Spellings, Spellings]:
    a, b, c = rng.randint(1, 6), rng.randint(1, 9), rng.randint(-9, -1)
    return polynomial_spellings(a, b, c), polynomial_spellings(a, b, _different(rng, -9, -1, c))


def _list(rng: random.Random) -> tuple[Spellings, Spellings]:
    values = rng.sample(range(-50, 50), rng.randint(2, 5))
    return list_spellings(values), list_spellings([*values[:-1], values[-1] + 100])


def _plus_minus(rng: random.Random) -> tuple[Spellings, Spellings]:
    a, b, n = rng.randint(1, 9), rng.randint(2, 9), rng.choice((2, 3, 5, 7))
    return plus_minus_spellings(a, b, n), plus_minus_spellings(a, b + 1, n)


def _complex(rng: random.Random) -> tuple[Spellings, Spellings]:
    a, b = rng.randint(1, 30), rng.randint(2, 30)
    return complex_spellings(a, b), complex_spellings(a, b + 1)


def _matrix(rng: random.Random) -> tuple[Spellings, Spellings]:
    k, entries = rng.randint(2, 9), [rng.randint(-9, 9) for _ in range(4)]
    return matrix_spellings(k, entries), matrix_spellings(k, [entries[0] + 1, *entries[1:]])


KINDS: dict[str, Callable[[random.Random], tuple[Spellings, Spellings]]] = {
    "fraction": _fraction,
    "decimal": _decimal,
    "root": _root,
    "pi": _pi,
    "polynomial": _polynomial,
    "list": _list,
    "plus or minus": _plus_minus,
    "complex": _complex,
    "matrix": _matrix,
}
