r"""Find the content of the last balanced, non-blank `\boxed{...}` of a text.

It knows the `\boxed` convention and nothing else: not what the content means, nor whether it is
right. Everything is one pass over the text, so hostile input costs no more than honest input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Several backslashes are accepted because escaped copies of LaTeX ("\\boxed") are common in dumps.
# The look-behind and the possessive `++` keep a long run of backslashes from being read repeatedly.
BOX_COMMAND = re.compile(r"(?<!\\)\\++(?:boxed|fbox)(?![a-zA-Z])")
# An escaped brace is a printed brace, not a group, so it must not count towards the balance.
_TOKEN = re.compile(
    rf"(?P<box>{BOX_COMMAND.pattern})(?:\s{{0,8}}(?P<open>\{{))?|\\.|(?P<brace>[{{}}])",
    re.DOTALL,
)
# `\boxed 42`: without braces only a number is believed, since prose also says "in \boxed form".
_BRACELESS = re.compile(r"\s{0,8}(?P<content>[-+]?\.?\d(?:[^\s$]*[^\s$.,;:!?*\\)])?)")
# The beginning of such a number, which the next characters may make longer.
_BRACELESS_OPEN = re.compile(r"\s{0,8}(?P<content>[-+]?\.?(?:\d[^\s$]*)?)\Z")


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """Where the answer is, without surrounding blanks: `text[start:stop]`.

    `content` is the answer itself: those characters as they are, or, inside a JSON string, with
    the string's escapes undone.
    """

    start: int
    stop: int
    content: str


def find_boxed(text: str) -> AnswerSpan | None:
    r"""The last balanced `\boxed{...}` or `\fbox{...}` that is not blank, or None.

    Last means opened last, so of nested boxes the innermost counts. A blank box is a mention of
    the format ("the answer goes in \boxed{}"), not an answer.
    """
    best: AnswerSpan | None = None
    open_braces: list[int | None] = []  # content start for a box, None for any other group
    for token in _TOKEN.finditer(text):
        found: AnswerSpan | None = None
        if token["open"]:
            open_braces.append(token.end())
        elif token["box"]:
            found = _braceless(text, token.end())
        elif token["brace"] == "{":
            open_braces.append(None)
        elif token["brace"] == "}" and open_braces:
            start = open_braces.pop()
            # A box that opened before the best one can only be its wrapper: slicing it as well
            # would make deep nesting quadratic.
            if start is not None and (best is None or start > best.start):
                found = _stripped(text, start, token.start())
        if found is not None:
            best = found
    return best


def unclosed_box(text: str) -> int | None:
    r"""Where the content begins of the last `\boxed{` that is never closed, None without one."""
    open_braces: list[int | None] = []  # as in `find_boxed`
    for token in _TOKEN.finditer(text):
        if token["open"]:
            open_braces.append(token.end())
        elif token["brace"] == "{":
            open_braces.append(None)
        elif token["brace"] == "}" and open_braces:
            open_braces.pop()
    return next((start for start in reversed(open_braces) if start is not None), None)


def open_box(text: str) -> int | None:
    r"""Where the content begins of the first box that further text may close as the last one.

    None without one. So of a text that is still being written nothing before that place, but for
    what `find_boxed` finds by then, is ever the answer's.
    """
    best = -1  # where the content begins of what `find_boxed` finds
    open_braces: list[int | None] = []  # as there
    number: int | None = None
    for token in _TOKEN.finditer(text):
        if token["open"]:
            open_braces.append(token.end())
        elif token["box"]:
            begun = _BRACELESS_OPEN.match(text, token.end())
            if begun is not None:
                number = begun.start("content") if number is None else number
                continue
            found = _braceless(text, token.end())
            best = best if found is None else found.start
        elif token["brace"] == "{":
            open_braces.append(None)
        elif token["brace"] == "}" and open_braces:
            start = open_braces.pop()
            if start is not None and start > best and _stripped(text, start, token.start()):
                best = start
    waiting = [start for start in (*open_braces, number) if start is not None and start > best]
    return min(waiting, default=None)


def _braceless(text: str, start: int) -> AnswerSpan | None:
    match = _BRACELESS.match(text, start)
    return None if match is None else AnswerSpan(*match.span("content"), match["content"])


def _stripped(text: str, start: int, stop: int) -> AnswerSpan | None:
    content = text[start:stop]
    if not content.strip():
        return None
    start += len(content) - len(content.lstrip())
    content = content.strip()
    return AnswerSpan(start, start + len(content), content)
