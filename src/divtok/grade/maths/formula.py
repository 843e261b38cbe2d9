r"""One formula, read exactly: \frac{1+\sqrt5}{2}, 2\pi r^2, \frac12\ln|x|, a scalar times a matrix.

Recursive descent over `tokens`, in this process and without computer algebra: what it reads, it
reads for certain. Where people read a spelling in two ways (1/2x, \ln 2x, f(3), a b/c) it is
`Unread` and left to the others.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from divtok.grade.maths import functions
from divtok.grade.maths.forms import Algebra, Form, Unread, atom, rational
from divtok.grade.maths.tokens import CONSTANTS, Token, tokens

MAX_ENTRIES = 100

Matrix: TypeAlias = "tuple[tuple[Form, ...], ...]"
Value: TypeAlias = "Form | Matrix"

# Before a parenthesis these are rather functions than factors.
_CALLED = frozenset("fghpqFGHPQTABCDLMNRSUVW")
_END = Token("end", "", False)


def read_formula(algebra: Algebra, text: str) -> Value:
    """The value of a normalised formula; Unread where it is not certain."""
    reader = _Reader(algebra, tokens(text))
    value = reader.sum()
    reader.expect_end()
    return value


class _Reader:
    def __init__(self, algebra: Algebra, found: list[Token]) -> None:
        self._algebra = algebra
        self._tokens = found
        self._place = 0
        self._bars = 0  # open | signs: the next one closes

    def expect_end(self) -> None:
        if self._next is not _END:
            raise Unread

    @property
    def _next(self) -> Token:
        return self._tokens[self._place] if self._place < len(self._tokens) else _END

    def _after(self, steps: int) -> Token:
        place = self._place + steps
        return self._tokens[place] if place < len(self._tokens) else _END

    def _take(self) -> Token:
        token = self._next
        self._place += 1
        return token

    def _skip(self, sign: str) -> None:
        if self._next.text != sign or self._next.kind != "sign":
            raise Unread
        self._place += 1

    def _sees(self, *signs: str) -> bool:
        return self._next.kind == "sign" and self._next.text in signs

    def sum(self) -> Value:
        negative = False
        if self._sees("+", "-"):
            negative = self._take().text == "-"
        total = self._term()
        if negative:
            total = self._scaled(rational(-1), total)
        while self._sees("+", "-"):
            sign = self._take().text
            term = self._term()
            total = self._added(total, self._scaled(rational(-1), term) if sign == "-" else term)
        return total

    def _term(self) -> Value:
        value = self._factor()
        divided = False
        while True:
            if self._sees("*"):
                self._take()
                value = self._multiplied(value, self._signed_factor())
            elif self._sees("/"):
                self._take()
                value = self._divided(value, self._signed_factor())
                divided = True
            elif self._begins_factor():
                # 1/2x may be half of x or one over 2x; digits do not follow a factor.
                if divided or self._next.kind == "number":
                    raise Unread
                value = self._multiplied(value, self._factor())
            else:
                return value

    def _signed_factor(self) -> Value:
        if self._sees("-"):
            self._take()
            return self._scaled(rational(-1), self._factor())
        return self._factor()

    def _begins_factor(self) -> bool:
        token = self._next
        if token.kind == "sign":
            return token.text in ("(", "{") or (token.text == "|" and not self._bars)
        if token.kind == "command":
            return token.text != r"\end"
        return token.kind in ("number", "name", "function")

    def _factor(self) -> Value:
        value = self._base()
        if self._sees("^"):
            self._take()
            value = functions.power(self._algebra, _scalar(value), self._exponent())
            if self._sees("^"):
                raise Unread
        if self._sees("!"):
            self._take()
            value = functions.factorial_of(_scalar(value))
            if self._sees("!", "^"):
                raise Unread
        return value

    def _exponent(self) -> Form:
        if self._sees("{"):
            return _scalar(self._group("{", "}"))
        if self._sees("("):  # x^(2): not LaTeX, but nothing else can be meant
            return _scalar(self._group("(", ")"))
        # Without braces LaTeX takes one sign; people who write 2^10 or x^-1 mean all of it.
        negative = self._sees("-")
        if negative:
            self._take()
        token = self._next
        if token.kind == "number":
            self._take()
            value = _number(token.text)
        elif token.kind == "name":
            value = self._name()
        else:
            raise Unread
        return self._algebra.negative(value) if negative else value

    def _base(self) -> Value:
        token = self._next
        if token.kind == "number":
            return self._mixed_number()
        if token.kind == "name":
            return self._name()
        if token.kind == "function":
            return self._function()
        if token.kind == "command":
            return self._command()
        if self._sees("("):
            return self._group("(", ")")
        if self._sees("{"):
            return self._group("{", "}")
        if self._sees("|") and not self._bars:
            return self._absolute()
        raise Unread

    def _group(self, opening: str, closing: str) -> Value:
        self._skip(opening)
        bars, self._bars = self._bars, 0
        value = self.sum()
        self._bars = bars
        self._skip(closing)
        return value

    def _absolute(self) -> Form:
        self._skip("|")
        self._bars += 1
        value = _scalar(self.sum())
        self._skip("|")
        self._bars -= 1
        return functions.absolute(self._algebra, value)

    def _mixed_number(self) -> Form:
        value = _number(self._take().text)
        if self._next.text != r"\frac":
            return value
        whole, start = value.rational, self._place
        part = self._command()
        number = part.rational if isinstance(part, Form) else None
        digits = all(
            token.kind in ("number", "command") or token.text in "{}"
            for token in self._tokens[start : self._place]
        )
        if not digits or number is None:  # 2\frac{x}{3} is a product
            return self._algebra.multiply(value, _scalar(part))
        # Beside a whole number only a proper fraction is a mixed number; 3\frac{5}{2} is a product.
        if whole is None or whole.denominator != 1 or not 0 < number < 1:
            raise Unread
        return self._algebra.add(value, _scalar(part))

    def _name(self) -> Form:
        name = self._take().text
        if self._sees("_"):
            self._take()
            name = f"{name}_{self._subscript()}"
        elif self._sees("(") and name not in CONSTANTS:
            inside, closing = self._after(1), self._after(2)
            if name in _CALLED or closing.text == ")" or inside.text == ")":
                raise Unread
        return atom(name)

    def _subscript(self) -> str:
        if not self._sees("{"):
            token = self._take()
            if token.kind not in ("number", "name") or (
                token.kind == "number" and len(token.text) > 1
            ):
                raise Unread
            return token.text
        self._take()
        parts: list[str] = []
        while self._next.kind in ("number", "name"):
            parts.append(self._take().text)
        self._skip("}")
        if not parts:
            raise Unread
        return " ".join(parts)

    def _function(self) -> Form:
        name = self._take().text
        if name == "sqrt":
            return functions.root(self._algebra, rational(2), _scalar(self._group("(", ")")))
        exponent = base = None
        if name == "log" and self._sees("_"):
            self._take()
            base = self._exponent()
        if self._sees("^"):
            self._take()
            exponent = self._exponent()
            number = exponent.rational
            if number is None or number.denominator != 1 or number < 1:  # sin^{-1} is another one
                raise Unread
        inside = self._inside(name)
        if base is None:
            value = functions.apply(self._algebra, name, inside)
        else:
            top = functions.logarithm(self._algebra, inside)
            value = self._algebra.divide(top, functions.logarithm(self._algebra, base))
        return value if exponent is None else functions.power(self._algebra, value, exponent)

    def _inside(self, name: str) -> Form:
        """What a function is applied to: a group, or one factor, with its number before angles."""
        for opening, closing in (("(", ")"), ("{", "}")):
            if self._sees(opening):
                value = _scalar(self._group(opening, closing))
                if self._sees("^", "!"):
                    raise Unread
                return value
        if self._sees("|"):
            return self._absolute()
        token = self._next
        if token.kind not in ("number", "name", "command") or token.text == r"\begin":
            raise Unread
        value = _scalar(self._factor())
        angle = name in functions.ANGLES and token.kind == "number"
        if angle and self._begins_factor() and self._next.kind in ("name", "command"):
            value = self._algebra.multiply(value, _scalar(self._factor()))
        # \sin x y, \ln 2x and \ln 2/3 are read in two ways.
        if self._begins_factor() or self._sees("/", "!"):
            raise Unread
        return value

    def _command(self) -> Value:
        command = self._take().text
        if command == r"\frac":
            top, bottom = self._group("{", "}"), _scalar(self._group("{", "}"))
            return self._divided(top, bottom)
        if command == r"\binom":
            top, bottom = _scalar(self._group("{", "}")), _scalar(self._group("{", "}"))
            return functions.choices(top, bottom)
        if command == r"\sqrt":
            degree = rational(2)
            if self._sees("["):
                degree = _scalar(self._group("[", "]"))
            return functions.root(self._algebra, degree, _scalar(self._group("{", "}")))
        if command == r"\begin":
            return self._matrix()
        raise Unread

    def _matrix(self) -> Matrix:
        name = self._environment()
        if name == "vmatrix":  # a determinant
            raise Unread
        if name == "array":
            self._skip("{")
            while self._next.kind == "name" and self._next.text in "lcr":
                self._take()
            self._skip("}")
        rows: list[tuple[Form, ...]] = []
        row: list[Form] = []
        while True:
            row.append(_scalar(self.sum()))
            if self._sees("&"):
                self._take()
                continue
            rows.append(tuple(row))
            row = []
            if self._sees("\\\\"):
                self._take()
                if self._next.text == r"\end":
                    break
                continue
            break
        if self._take().text != r"\end" or self._environment() != name:
            raise Unread
        if len({len(cells) for cells in rows}) != 1 or len(rows) * len(rows[0]) > MAX_ENTRIES:
            raise Unread
        return tuple(rows)

    def _environment(self) -> str:
        self._skip("{")
        token = self._take()
        self._skip("}")
        if token.kind != "environment":
            raise Unread
        return token.text

    def _added(self, left: Value, right: Value) -> Value:
        if isinstance(left, Form) and isinstance(right, Form):
            return self._algebra.add(left, right)
        if isinstance(left, Form) or isinstance(right, Form) or _size(left) != _size(right):
            raise Unread
        pairs = (zip(one, other, strict=True) for one, other in zip(left, right, strict=True))
        return tuple(tuple(self._algebra.add(a, b) for a, b in row) for row in pairs)

    def _multiplied(self, left: Value, right: Value) -> Value:
        if isinstance(left, Form):
            return self._scaled(left, right)
        if isinstance(right, Form):
            return self._scaled(right, left)
        raise Unread  # a product of matrices is rarely left undone in an answer

    def _scaled(self, factor: Form, value: Value) -> Value:
        if isinstance(value, Form):
            return self._algebra.multiply(factor, value)
        return tuple(tuple(self._algebra.multiply(factor, cell) for cell in row) for row in value)

    def _divided(self, left: Value, right: Value) -> Value:
        divisor = _scalar(right)
        if isinstance(left, Form):
            return self._algebra.divide(left, divisor)
        return tuple(tuple(self._algebra.divide(cell, divisor) for cell in row) for row in left)


def _number(text: str) -> Form:
    return rational(Fraction(text), decimal="." in text)


def _scalar(value: Value) -> Form:
    if not isinstance(value, Form):
        raise Unread
    return value


def _size(matrix: Matrix) -> tuple[int, int]:
    return len(matrix), len(matrix[0])
