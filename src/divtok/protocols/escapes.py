r"""Undo the escapes of a JSON string without spoiling LaTeX that was written with no escapes.

Models write "\frac{1}{2}" where JSON wants "\\frac{1}{2}". Half of such commands are not a JSON
escape at all, and the others are a different one: strict JSON reads a form feed and "rac{1}{2}". So
a string in which a single backslash starts a LaTeX command or sign is taken as LaTeX, where every
backslash is as written; any other string is JSON.
"""

from __future__ import annotations

import json
import re

_ESCAPE = re.compile(
    r"\\(?:(?P<code>u[0-9a-fA-F]{4}(?:\\u[0-9a-fA-F]{4})*+)|(?P<word>[A-Za-z]++)|(?P<sign>.))",
    re.DOTALL,
)
_BLANKS = {"n": "\n", "r": "\r", "t": "\t"}
# After these three letters JSON may mean a blank: "\nor" is a new line, "\neq" is LaTeX.
_COMMAND = re.compile(
    r"nabla|natural|ne|nearrow|neg|neq|nexists|ngeq|ngtr|ni|nleq|nless|nmid|not|notin|nparallel"
    r"|nsim|nsubseteq|nsupseteq|nu|nwarrow"
    r"|rangle|rbrace|rbrack|rceil|rfloor|rho|right|rightarrow|rightleftharpoons|rm|rvert|rVert"
    r"|tan|tanh|tau|tbinom|text(?:bf|it|normal|rm|sf|style|tt)?|tfrac|therefore|theta|tilde|times"
    r"|to|top|triangle|triangleq"
)
_SURROGATES = re.compile("[\ud800-\udfff]")


def unescape(raw: str) -> str:
    """The text that the characters between a string's quotes mean."""
    if "\\" not in raw:
        return raw
    latex = any(_is_latex(escape) for escape in _ESCAPE.finditer(raw))
    return _ESCAPE.sub(lambda escape: _plain(escape, latex), raw)


def _is_latex(escape: re.Match[str]) -> bool:
    if escape["code"]:
        return False
    if sign := escape["sign"]:
        return sign not in "\"'\\/"
    word = escape["word"]
    if word[0] in _BLANKS:
        return _COMMAND.fullmatch(word) is not None
    return word not in ("b", "f")  # longer ones are \beta and \frac: nobody means a backspace


def _plain(escape: re.Match[str], latex: bool) -> str:
    if escape["code"]:
        decoded: str = json.loads(f'"{escape[0]}"')
        # Half of a surrogate pair is not a character and could not be stored.
        return escape[0] if _SURROGATES.search(decoded) else decoded
    if sign := escape["sign"]:
        return sign if sign in "\"'" or (sign in "\\/" and not latex) else escape[0]
    word = escape["word"]
    if word[0] in _BLANKS and not _COMMAND.fullmatch(word):
        return _BLANKS[word[0]] + word[1:]
    return escape[0]
