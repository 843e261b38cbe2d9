"""What is known of one response: its confidence, and its tokens with their divergences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import SupportsIndex, overload

from divtok.records import Scalar, Trace

# What fits on a screen when it is printed.
_WIDTH, _LINES = 80, 20


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the response: its text, its divergence, and whether it counts as divergent.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> token = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair).tokens[0]
        >>> token.text, token.divergent
        ('It', True)
    """

    text: str
    jsd_bits: float
    divergent: bool


class Tokens(tuple[Token, ...]):
    """The tokens of a response, in order: a tuple of `Token` that shows itself.

    Printed, divergent tokens are in [brackets]; in a notebook they are coloured by divergence.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> tokens = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair).tokens
        >>> isinstance(tokens, divtok.Tokens), tokens[:2].theta == tokens.theta
        (True, True)
    """

    theta: float

    def __new__(cls, tokens: Iterable[Token], theta: float) -> Tokens:
        made = super().__new__(cls, tokens)
        made.theta = theta
        return made

    def __getnewargs__(self) -> tuple[tuple[Token, ...], float]:
        return tuple(self), self.theta

    @overload
    def __getitem__(self, index: SupportsIndex) -> Token: ...
    @overload
    def __getitem__(self, index: slice) -> Tokens: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Token | Tokens:
        if isinstance(index, slice):
            return Tokens(super().__getitem__(index), self.theta)
        return super().__getitem__(index)

    def __repr__(self) -> str:
        from divtok.screen import visible

        divergent = sum(token.divergent for token in self)
        text = "".join(f"[{t.text}]" if t.divergent else t.text for t in self)
        lines = [
            piece
            for line in visible(text, keep="\n").split("\n")
            for piece in textwrap.wrap(line, _WIDTH) or [""]
        ]
        if len(lines) > _LINES:
            lines = [*lines[: _LINES - 1], f"... {len(lines) - _LINES + 1} more lines"]
        head = f"<{divergent} divergent of {len(self)} tokens at theta {self.theta:g}>"
        return "\n".join([head, *lines])

    def to_html(self) -> str:
        """The tokens coloured by divergence, as HTML without scripts."""
        from divtok.report.terminal import html_tokens

        return html_tokens(
            [token.text for token in self],
            [token.jsd_bits for token in self],
            self.theta,
            reasoning=[token.divergent for token in self],
        )

    def _repr_html_(self) -> str:
        return self.to_html()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The confidence in one response. In a notebook it shows the tokens coloured by divergence.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> result = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair)
        >>> result.count == sum(token.divergent for token in result.tokens)
        True
        >>> result.trace.jsd_bits.shape == (len(result.tokens),)
        True
    """

    value: float
    count: int
    tokens: Tokens
    estimator: str
    params: Mapping[str, Scalar]
    theta: float
    trace: Trace
    # Where servers gave bounds only: what value and count certainly lie between.
    bounds: tuple[float, float] | None = None
    count_bounds: tuple[int, int] | None = None
    # The share of right answers that the value is stated for; None: as the estimator gives it.
    prior: float | None = None

    def __repr__(self) -> str:
        return (
            f"<Result: {self.estimator} {self.value:.3f}, {self.count} divergent of "
            f"{len(self.tokens)} tokens at theta {self.theta:g}>"
        )

    def _repr_html_(self) -> str:
        view = self.tokens.to_html()
        return f"<p>{self.estimator}: <b>{self.value:.3f}</b></p>{view}"
