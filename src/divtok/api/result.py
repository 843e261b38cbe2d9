"""What is known of one response: its confidence, and its tokens with what marks them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import SupportsIndex, overload

from divtok.decide.policy import Decision
from divtok.records import Scalar, Trace
from divtok.report.marks import NOT_KNOWN, marked, summary, with_newlines_seen
from divtok.score.estimators.guarded import GUARD
from divtok.score.fitted import how_stated

# What fits on a screen when it is printed.
_WIDTH, _LINES = 80, 20


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the response: its text, its divergence, and whether it counts as divergent.

    `unexpected` says that neither model would have written it: by `excess_nats` it surprises both
    more than they expect to be surprised. Both are None where servers told too little to know.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> token = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair).tokens[0]
        >>> token.text, token.divergent
        ('It', True)
        >>> question = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
        >>> typed = "421 + 130 = 541.\\nThe answer is \\\\boxed{541}."
        >>> tokens = divtok.confidence(question, typed, pair=pair).tokens
        >>> [(token.text, round(token.excess_nats)) for token in tokens if token.unexpected]
        [('4', 11)]
    """

    text: str
    jsd_bits: float
    divergent: bool
    unexpected: bool | None = None
    excess_nats: float | None = None


class Tokens(tuple[Token, ...]):
    """The tokens of a response, in order: a tuple of `Token` that shows itself.

    Printed, divergent tokens are in [brackets] and unexpected ones in {!braces}; in a notebook they
    are coloured by divergence, and unexpected ones have a frame.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> tokens = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair).tokens
        >>> isinstance(tokens, divtok.Tokens), tokens[:2].theta == tokens.theta
        (True, True)
    """

    theta: float  # above it a divergence is divergent, in bits
    guard: float  # above it an excess is unexpected, in nats

    def __new__(cls, tokens: Iterable[Token], theta: float, guard: float = GUARD) -> Tokens:
        made = super().__new__(cls, tokens)
        made.theta, made.guard = theta, guard
        return made

    def __getnewargs__(self) -> tuple[tuple[Token, ...], float, float]:
        return tuple(self), self.theta, self.guard

    @overload
    def __getitem__(self, index: SupportsIndex) -> Token: ...
    @overload
    def __getitem__(self, index: slice) -> Tokens: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Token | Tokens:
        if isinstance(index, slice):
            return Tokens(super().__getitem__(index), self.theta, self.guard)
        return super().__getitem__(index)

    @property
    def unexpected_count(self) -> int | None:
        """How many neither model would have written; None where that is not known."""
        marks = [token.unexpected for token in self]
        return None if None in marks else sum(map(bool, marks))

    def __repr__(self) -> str:
        from divtok.screen import visible

        text = "".join(map(_marked, self))
        lines = [
            piece
            for line in visible(text, keep="\n").split("\n")
            for piece in textwrap.wrap(line, _WIDTH) or [""]
        ]
        if len(lines) > _LINES:
            lines = [*lines[: _LINES - 1], f"... {len(lines) - _LINES + 1} more lines"]
        return "\n".join([f"<{_told(self)}>", *lines])

    def to_html(self) -> str:
        """The tokens coloured by divergence, as HTML without scripts."""
        from divtok.report.trajectory import html_tokens

        excess = [token.excess_nats for token in self]
        return html_tokens(
            [token.text for token in self],
            [token.jsd_bits for token in self],
            self.theta,
            reasoning=[token.divergent for token in self],
            excess=None if None in excess else [nats for nats in excess if nats is not None],
            guard=self.guard,
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def _told(tokens: Tokens) -> str:
    divergent, unexpected = sum(token.divergent for token in tokens), tokens.unexpected_count
    unknown = f"; {NOT_KNOWN}" if unexpected is None else ""
    return f"{summary(divergent, unexpected, len(tokens))} at theta {tokens.theta:g}{unknown}"


def _marked(token: Token) -> str:
    is_marked = token.divergent or token.unexpected
    text = with_newlines_seen(token.text) if is_marked else token.text
    return marked(text, divergent=token.divergent, unexpected=bool(token.unexpected))


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
    # What a policy says of it, where one was given.
    decision: Decision | None = None

    def __repr__(self) -> str:
        decided = "" if self.decision is None else f", {self.decision.action}"
        told = f"{self.estimator} {self.value:.3f}{self._stated()}{decided}"
        return f"<Result: {told}, {_told(self.tokens)}>"

    def _repr_html_(self) -> str:
        view = self.tokens.to_html()
        decided = ""
        if self.decision is not None:
            import html

            decided = f"; {self.decision.action}: {html.escape(self.decision.reason)}"
        return f"<p>{self.estimator}: <b>{self.value:.3f}</b>{self._stated()}{decided}</p>{view}"

    def _stated(self) -> str:
        return how_stated(self.params, self.prior)
