r"""One spelling for the many ways an answer can be typeset, without deciding what it means.

Only layout is removed here (delimiters, spacing, font commands, synonyms, degree and currency
signs). Nothing is evaluated, and every step is linear in the length of the text.
"""

from __future__ import annotations

import re

_SIGNS = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "×": r"\times ",
        "·": r"\cdot ",
        "÷": "/",
        "°": r"^\circ ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∅": r"\emptyset ",
        "∈": r"\in ",
        "∠": r"\angle ",
        "≈": r"\approx ",
        "⌊": r"\lfloor ",
        "⌋": r"\rfloor ",
        "⌈": r"\lceil ",
        "⌉": r"\rceil ",
        "²": "^2",
        "³": "^3",
        "√": r"\sqrt ",
        "\u00a0": " ",
        "\u2009": " ",
        "\u202f": " ",
    }
)
# Whole-answer delimiters, longest first so that `$$` is not taken for two `$`.
_DELIMITERS = (("$$", "$$"), (r"\[", r"\]"), (r"\(", r"\)"), ("$", "$"))
# Escaped copies of LaTeX double every backslash; where there are rows, a double one ends a row.
_ROWS = re.compile(r"\\begin\s{0,8}\{")
_DOUBLED = re.compile(r"\\\\(?=[a-zA-Z])")
_SIZES = re.compile(r"\\(?:left|right|bigl?|bigr|Bigl?|Bigr|displaystyle|textstyle)(?![a-zA-Z])")
# The look-behinds keep the row separator `\\` of a matrix from being read as a command.
_LOOSE_SPACE = re.compile(r"(?<!\\)\\[;: ,]|\\q?quad(?![a-zA-Z])|~")
# A thin or negative space inside a number separates thousands; elsewhere it is just a space.
_THIN_SPACE = re.compile(r"(?<=[\d,])\\[,!]\s{0,8}(?=\d)|(?<!\\)\\!")
_FRACTIONS = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_ARGUMENTS = {r"\frac": 2, r"\binom": 2, r"\sqrt": 1}
_TAKES_ARGUMENTS = re.compile(r"\\(?:frac|binom|sqrt)(?![a-zA-Z])")
_PIECE = re.compile(r"\\[a-zA-Z]+|\\.|\s+|.", re.DOTALL)
_ARGUMENT = re.compile(r"[0-9A-Za-z]|\\(?!frac$|sqrt$|binom$|left$|text$|begin$|mathrm$)[a-zA-Z]+")
_FONTS = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt)?|mathrm|mathbf|mathit|mathsf|mbox|hbox|boldsymbol|bm)\s{0,8}(?=\{)"
)
_DEGREES = re.compile(
    r"\^\s{0,8}(?:\\circ(?![a-zA-Z])|\{\s{0,8}\\circ\s{0,8}\})|\\degrees?(?![a-zA-Z])"
)
# Inside a trigonometric function a degree is not a unit that can be left out, but a factor.
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
_DEGREE_ANGLE = re.compile(rf"(\d+(?:\.\d+)?|(?<![a-zA-Z\\])[a-zA-Z])\s?(?:{_DEGREES.pattern})")
_ROOT_SIGN = re.compile(r"√\s?(\d+(?:\.\d+)?|[a-zA-Z])")
# Behind a number, m, s, kg and the like are units and stay in their text command.
_ONE_LETTER_TEXT = re.compile(
    r"(?<![\d})])(?<![\d})]\s)\\text\{\s{0,8}([A-Za-z])\s{0,8}\}|\\text\{\s{0,8}([^\WmgshLlVNJWAKCF\d_])\s{0,8}\}"
)
_NUMBER_TEXT = re.compile(r"\\text\{\s{0,8}([-+]?[\d.,]++)\s{0,8}\}")
_ONE_SIGN_SUBSCRIPT = re.compile(r"_\s?\{\s?([0-9A-Za-z])\s?\}")
# 1e-5, 2.5E3: what programs write for powers of ten. In 2e and e-5 the letter is Euler's number.
_POWER_OF_TEN = re.compile(
    r"(?<![\w.\\^])(?<!_\{)(\d+(?:\.\d*)?|\.\d+)[eE]([-+]?)0{0,8}(\d{1,4})(?![\w.])(?!\s?\^)"
)
_WHOLE_TEXT = re.compile(r"\\text\{([^{}\\]*)\}")
# The end of a proof, or a tick behind the answer.
_END_MARK = re.compile(r"(?<=[\w)}\]])\s?\\(?:blacksquare|square|qed|checkmark)\s{0,8}$")
_SPACES = re.compile(r"[^\S\n]+")
_ALL_SPACES = re.compile(r"\s+")
# Blanks carry meaning only between two digits ("1 2") or two letters ("a b").
_IDLE_SPACE = re.compile(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])|(?<=[0-9]) (?=[A-Za-z])")


def normalize(text: str) -> str:
    """The answer with its layout removed; equal results mean equal answers."""
    text = _unwrap(_ROOT_SIGN.sub(r"\\sqrt{\1}", text).translate(_SIGNS))
    if not _ROWS.search(text):
        text = _DOUBLED.sub(r"\\", text)
    text = _SIZES.sub("", text)
    text = _THIN_SPACE.sub("", text)
    text = _LOOSE_SPACE.sub(" ", text).replace("{,}", ",")
    text = text.replace(r"\varnothing", r"\emptyset")
    text = _END_MARK.sub("", text)
    text = _FRACTIONS.sub(r"\\frac", text)
    text = _FONTS.sub(r"\\text", text)
    text = _NUMBER_TEXT.sub(r"\1", _ONE_LETTER_TEXT.sub(r"\1\2", text))
    text = brace_arguments(text.replace(r"\imath", "i"))
    text = _ONE_SIGN_SUBSCRIPT.sub(r"_\1", text)
    text = _POWER_OF_TEN.sub(_as_power_of_ten, text)
    if _TRIGONOMETRY.search(text):
        text = _DEGREE_ANGLE.sub(r"(\\frac{\1 \\pi}{180})", text)
    text = _DEGREES.sub("", text)
    text = text.replace(r"\%", "%").replace(r"\$", "")
    if text.count("$") == 1:  # a lone dollar sign delimits nothing: it is the currency
        text = text.replace("$", "")
    # In running text a formula written between dollar signs ends with its line at the latest.
    text = (_SPACES if "$" in text else _ALL_SPACES).sub(" ", text).strip()
    # A sentence's full stop, or the backslash of a cut-off command, ends the line, not the answer.
    text = text.rstrip(" .\\") if text.strip(" .\\") else text
    return _unwrap(text)


def brace_arguments(text: str) -> str:
    r"""Braces around what LaTeX takes without them: \frac12, \frac\pi2, \sqrt\pi, \frac{x}2."""
    if not _TAKES_ARGUMENTS.search(text):
        return text
    written: list[str] = []
    open_braces: list[int] = []  # how many arguments are still to come after each one closes
    missing = 0
    in_degree = False  # of a root: \sqrt[3]{2}
    for piece in _PIECE.findall(text):
        if in_degree:
            in_degree = piece != "]"
        elif missing and piece.isspace():
            continue
        elif missing and piece == "[" and written[-1] == r"\sqrt":
            in_degree = True
        elif missing and piece == "{":
            open_braces.append(missing - 1)
            missing = 0
        elif missing and _ARGUMENT.fullmatch(piece):
            piece = f"{{{piece}}}"
            missing -= 1
        elif piece in _ARGUMENTS:
            missing = _ARGUMENTS[piece]
        elif piece == "{":
            open_braces.append(0)
        elif piece == "}":
            missing = open_braces.pop() if open_braces else 0
        else:
            missing = 0
        written.append(piece)
    return "".join(written)


def _as_power_of_ten(number: re.Match[str]) -> str:
    sign = "-" if number[2] == "-" else ""
    return rf"{number[1]} \cdot 10^{{{sign}{number[3]}}}"


def squeeze(normalized: str) -> str:
    """A normalised answer without the blanks that mean nothing, for comparing as a string."""
    return _IDLE_SPACE.sub("", normalized)


def plain_words(normalized: str) -> str | None:
    r"""The words of an answer that is one `\text{...}` and nothing else, or None."""
    match = _WHOLE_TEXT.fullmatch(normalized)
    return None if match is None else match[1].strip(" .")


def fold_words(words: str) -> str:
    """Words as compared with each other: case and outer parentheses do not matter."""
    return words.strip("() .").casefold()


def _unwrap(text: str) -> str:
    text = text.strip()
    for opening, closing in _DELIMITERS:
        inner = text[len(opening) : -len(closing)]
        wrapped = text.startswith(opening) and text.endswith(closing) and inner.strip()
        if wrapped and "$" not in inner and opening not in inner:
            return inner.strip()
    return text
