r"""Notation that is not read for what it means, so that two values that differ say nothing.

The parser either refuses it, drops it (the dots of 0.333\ldots) or takes it for something else (mod
for the product of m, o and d). An answer with such notation can be found correct; where it is not,
it is undetermined, never incorrect.
"""

from __future__ import annotations

import re

from divtok.grade.judgement import INCORRECT, Judgement, undetermined

# No pattern may take longer than the text is long: quantifiers are possessive where they could.
_END = r"(?![a-zA-Z])"  # of a command
_UNREAD = {
    "a modulus": re.compile(rf"\\(?:[bp]?mod|pod){_END}|(?<![a-zA-Z\\])mod{_END}"),
    "dots": re.compile(rf"[\d),+*-]\s?(?:\.\.\.|…|\\[lcdv]?dots[bcimo]?{_END})"),
    "a bar over figures": re.compile(r"\\(?:overline|bar|dot)\s?\{[^{}\d+-]*+[\d+-]"),
    "a power of ten without a sign": re.compile(r"\d\s?[xX]\s?10\s?\^"),
    # 2e-1 is 0.2 to a program and 4.43 to a mathematician; 1e-1, 2.5e-1 and 2e-01 are clear.
    "a power of ten or Euler's number": re.compile(
        r"(?<![\w.\\^])(?:[02-9]|[1-9]\d{1,8}+)e[-+]\d(?![\w.])"
    ),
    "a command without a backslash": re.compile(r"(?<![a-zA-Z\\])(?:frac|sqrt|binom)\s?\{"),
    "a number of choices": re.compile(
        r"(?<![a-zA-Z])[ACP]\}?(?:_\{?\d+\}?\^\{?\d+\}?|\^\{?\d+\}?_\{?\d+\}?)"
    ),
    "a double factorial": re.compile(r"!\s?!"),
    "a derivative written with a prime": re.compile(r"[)\]}]\s?'"),
    "a set by a condition": re.compile(r"\\\{[^{}:|]*+[:|][^{}]*+\}"),
    "unit vectors": re.compile(r"\\(?:hat|vec|mathbf|boldsymbol)\s?\{\s?\\?[ijk](?:math)?\s?\}"),
    "a real or imaginary part": re.compile(rf"\\(?:Re|Im){_END}"),
}
_TEXT = re.compile(r"\\text\s?\{([^{}]*+)\}")
_WHOLE_TEXT = re.compile(r"\\text\s?\{[^{}]*+(?:\{[^{}]*+\}[^{}]*+)*+\}")
_PROSE = re.compile(r"[\w\s.,;:'\"!?()$%/-]*+")
_WORD = re.compile(r"[^\W\d_]{2}")
_GAP = re.compile(r"(?:[\s.?…_(){}&]|\\\\|\\[lcdv]?dots|\\(?:begin|end)\s?\{[a-z]*+\})*+")


def different(*, gold: str, answer: str) -> Judgement:
    """The judgement on two answers, as they were written, that differ as far as they are read."""
    for text, name in ((gold, "gold"), (answer, "answer")):
        for notation, pattern in _UNREAD.items():
            if pattern.search(text):
                return unread(name, notation)
    return INCORRECT


def unread(name: str, notation: str | None = None) -> Judgement:
    """`name` is what has the notation: "gold" or "answer"."""
    what = "" if notation is None else f" ({notation})"
    return undetermined("unread", f"{name} cannot be read{what}")


def leaves_a_gap(normalized: str) -> bool:
    """Nothing is said ("x = ?", "((", "="): as a gold answer it cannot decide anything."""
    return _GAP.fullmatch(_TEXT.sub(r" \1 ", normalized).rpartition("=")[2]) is not None


def says_no_value(normalized: str) -> bool:
    """Words, perhaps with numbers, or a gap that was left open ("x = ?"): there is no notation in
    either that could have been misread."""
    words = _TEXT.sub(r" \1 ", normalized)
    if leaves_a_gap(normalized):
        return True
    prose = _PROSE.fullmatch(words) or _WHOLE_TEXT.fullmatch(normalized)
    return prose is not None and _WORD.search(words) is not None
