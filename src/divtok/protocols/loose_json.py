r"""Find the last JSON value of a wanted shape in a response, repaired where it is not quite JSON.

A value is first read strictly, then with everything models get wrong: other quotes or none, quotes
inside strings, missing or extra commas, missing brackets, an end cut off. For the repair the texts
and numbers are taken out and json-repair only sees brackets, commas, colons and names that stand
for them. So it can mend the structure but never change a text, and each text keeps its place.

This module knows nothing about answers and confidences. Its work is bounded whatever the text: it
looks at the last values that could be meant, each up to a length, a depth and a number of parts.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from divtok.protocols.escapes import unescape

MAX_STARTS = 32
MAX_CHARACTERS = 100_000
MAX_TOKENS = 500
MAX_DEPTH = 32

CUT_OFF = "cut off"
NOT_ALONE = "not the only value in its place"

_STARTS = {
    "{": re.compile(r"\{(?=\s{0,64}(?:[\"'“][^\"'“”\n]{1,64}[\"'”]|[^\W\d][\w -]{0,64})\s{0,8}:)"),
    "[": re.compile(r"\[(?=\s{0,64}\{)"),
}
_STRICT = re.compile(
    r"""
    \s*+(?:
        (?P<mark>[{}\[\]:,])
      | "(?P<string>(?:[^"\\]|\\.)*+)"
      | (?P<word>-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
# Where a quote ends its string: before a comma, colon, bracket or the end of the line, or, where a
# comma is missing, before the next key. Any other quote is part of the text.
_CLOSES = r"[^\S\n]{0,64}(?:[,:}\]\n`]|\Z)|\s{0,64}[\"'][\w -]{1,40}[\"']\s{0,8}:"
_GROUP = r"\{(?:[^{}\n\"]|\{[^{}\n\"]*+\})*+\}"
_LOOSE = re.compile(
    rf"""
    \s*+(?:
        (?P<fence>`)
      | (?P<mark>[{{}}\[\]:,])
      | (?P<quote>["'])
        (?P<string>(?:[^\\"']++|\\.|(?!(?P=quote))["']|(?P=quote)(?!{_CLOSES}))*+)(?P=quote)
      | “(?P<curly>[^”]*+)”
      | ["'“](?P<open>.*+)
      # A brace right after a letter, a hat, an underscore or another group belongs to LaTeX.
      | (?P<word>[^\s,:{{}}\[\]"“](?:[^\n,:{{}}\[\]"“`]|(?<=[\w^}}]){_GROUP})*+)
    )
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile("t([0-9]{1,4})")
_NOT_IN_KEYS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text or number: `text[start:stop]`, without quotes and outer blanks, and what that means.

    `fault` says why the value cannot be relied on: cut off, or only one of several in its place.
    """

    start: int
    stop: int
    content: str
    quoted: bool
    fault: str | None


# None is a place where something was meant to be, and cannot be made out.
Node = Scalar | dict[str, "Node"] | list["Node"] | None


@dataclass(frozen=True, slots=True)
class _Token:
    """A mark (`kind` is the character itself), a "string" or a "word"; strings without quotes."""

    kind: str
    start: int
    stop: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class _Region:
    """The tokens of one value, and where it ends."""

    text: str
    tokens: list[_Token]
    stop: int
    closed: bool


def find_last(text: str, opening: Literal["{", "["], key: str) -> Node:
    """The last object that has `key`, or the last array of objects of which one has it.

    Keys are compared, and given, without letter case, blanks and signs; of equal ones in an object
    the last counts. Of values inside each other the outermost counts.
    """
    found: Node = None
    inside: Container[int] = ()
    for match in deque(_STARTS[opening].finditer(text), maxlen=MAX_STARTS):
        start = match.start()
        if start in inside:
            continue
        for read in (_read_strictly, _read_repaired):
            node, covered = read(text, start, key)
            if _has(node, opening, key):
                found, inside = node, covered
                break
    return found


def fold_key(key: str) -> str:
    return _NOT_IN_KEYS.sub("", key).casefold()


def _has(node: Node, opening: str, key: str) -> bool:
    if opening == "{":
        return isinstance(node, dict) and key in node
    return isinstance(node, list) and any(isinstance(part, dict) and key in part for part in node)


def _read_strictly(text: str, start: int, key: str) -> tuple[Node, Container[int]]:
    """The value, and where no other one is looked for."""
    region = _region(text, start, _STRICT)
    if region is None or not region.closed or not _mentions(region, key):
        return None, ()
    try:
        return _node(json.loads(_skeleton(region)), region), range(start, region.stop)
    except ValueError:
        return None, ()


def _read_repaired(text: str, start: int, key: str) -> tuple[Node, Container[int]]:
    region = _region(text, start, _LOOSE)
    if region is None or not _mentions(region, key):
        return None, ()
    import json_repair

    # Where broken strings end is a guess, and so is the end of what was never closed: another value
    # in there is a value of its own.
    nested = [t.start for t in region.tokens if t.kind in "{["] if region.closed else []
    node = _node(json_repair.loads(_skeleton(region)), region)
    if isinstance(node, list) and not region.closed and region.tokens[-1].kind in "{,":
        node.append(None)  # the text ends where one more part was expected
    return node, frozenset(nested)


def _region(text: str, start: int, pattern: re.Pattern[str]) -> _Region | None:
    """The tokens from an opening bracket to the one that closes it, or as far as they go."""
    tokens: list[_Token] = []
    brackets: list[str] = []
    position, limit = start, min(len(text), start + MAX_CHARACTERS)
    while match := pattern.match(text, position, limit):
        if match.lastgroup == "fence":
            return _Region(text, tokens, position, closed=False)
        token = _token(match)
        tokens.append(token)
        position = match.end()
        if token.kind in "{[":
            brackets.append("}" if token.kind == "{" else "]")
        elif token.kind in brackets:  # what was opened inside and never closed ends with it
            while brackets.pop() != token.kind:
                pass
        if not brackets:
            return _Region(text, tokens, position, closed=True)
        if len(brackets) > MAX_DEPTH or len(tokens) > MAX_TOKENS:
            return None
    return None if limit < len(text) else _Region(text, tokens, position, closed=False)


def _token(match: re.Match[str]) -> _Token:
    group = match.lastgroup
    assert group is not None
    start, stop = match.span(group)
    if group == "mark":
        return _Token(match[group], start, stop)
    if group != "word":
        return _Token("string", start, stop, cut=group == "open")
    # A number that runs to the very end of the text may have been going on.
    cut = stop == len(match.string)
    return _Token("word", start, start + len(match[group].rstrip()), cut)


def _mentions(region: _Region, key: str) -> bool:
    pairs = zip(region.tokens, region.tokens[1:], strict=False)
    return any(_is_key(pair) and fold_key(_raw(region, pair[0])) == key for pair in pairs)


def _skeleton(region: _Region) -> str:
    """The value with a short name in place of each text and number."""
    return "".join(
        f'"t{index}"' if _is_scalar(token) else token.kind
        for index, token in enumerate(region.tokens)
    )


def _node(parsed: object, region: _Region) -> Node:
    """A parsed skeleton with its texts and numbers put back."""
    if isinstance(parsed, dict):
        members = cast("dict[str, object]", parsed)
        keys = {name: _key(name, region) for name in members}
        return {key: _node(members[name], region) for name, key in keys.items() if key is not None}
    if isinstance(parsed, list):
        return [_node(part, region) for part in cast("list[object]", parsed)]
    index = _index(parsed)
    if index is None:
        return None
    token = region.tokens[index]
    raw, quoted = _raw(region, token), token.kind == "string"
    start = token.start + len(raw) - len(raw.lstrip())
    raw = raw.strip()
    content = unescape(raw) if quoted else raw
    return Scalar(start, start + len(raw), content, quoted, _fault(region, index))


def _key(name: str, region: _Region) -> str | None:
    index = _index(name)
    # A repair also makes keys of what no colon follows.
    if index is None or not _is_key(region.tokens[index : index + 2]):
        return None
    return fold_key(_raw(region, region.tokens[index]))


def _index(name: object) -> int | None:
    """Which token a name in the skeleton stands for; None where a repair made something else."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    return None if match is None else int(match[1])


def _fault(region: _Region, index: int) -> str | None:
    """Why the value at `index` is more or less than one value, or None."""
    token = region.tokens[index]
    if token.cut:
        return CUT_OFF
    after = region.tokens[index + 1 : index + 4]
    if not after or "\n" in region.text[token.stop : after[0].start]:
        return None
    if after[0].kind == ",":
        after = after[1:]
        if not after:
            return None
    # A closing bracket may follow, or the next key, even one that the text breaks off in; anything
    # else was part of the value.
    is_broken_key = len(after) == 1 and after[0].kind == "string"
    return None if after[0].kind in "}]" or _is_key(after) or is_broken_key else NOT_ALONE


def _is_key(tokens: Sequence[_Token]) -> bool:
    return len(tokens) > 1 and _is_scalar(tokens[0]) and tokens[1].kind == ":"


def _is_scalar(token: _Token) -> bool:
    return token.kind in ("string", "word")


def _raw(region: _Region, token: _Token) -> str:
    return region.text[token.start : token.stop]
