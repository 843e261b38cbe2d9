"""Make foreign text safe to show: model output, problem texts and names are not ours.

One function for each place text goes. None of them drops a character without a trace: what cannot
be shown is replaced by a visible symbol.
"""

from __future__ import annotations

import re

from divtok.screen import visible

_LATEX = {sign: f"\\{sign}" for sign in "{}$&#%_"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
# The wide forms act alike in spreadsheets of some languages.
_FORMULA_START = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_LONGEST_SLUG = 80


def markdown(text: str) -> str:
    """`text` as the plain content of one Markdown table cell."""
    escaped = re.sub(r"([\\`*_{}\[\]<>|#~$&!])", r"\\\1", visible(text))
    # Entities are read in tables too, and a renderer may allow HTML: these two must not survive.
    return escaped.replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")


def latex(text: str) -> str:
    """`text` as plain LaTeX content."""
    return "".join(_LATEX.get(c, c) for c in visible(text))


def csv_text(text: str) -> str:
    """`text` that a spreadsheet does not run as a formula: a quote goes in front if needed."""
    return "'" + text if text.startswith(_FORMULA_START) else text


def plot_text(text: str) -> str:
    """`text` for matplotlib, which would read a pair of dollar signs as a formula."""
    return visible(text).replace("$", r"\$")


def slug(text: str) -> str:
    """`text` as part of a file name: ASCII letters, digits, dots, dashes; never hidden or empty."""
    kept = re.sub(r"[^A-Za-z0-9.]+", "-", text).strip(".-")
    return kept[:_LONGEST_SLUG].rstrip(".-") or "unnamed"
