"""Show a trajectory in the terminal, and its tokens as HTML.

The background of a token grows with its divergence; divergent tokens are also bold and underlined,
unexpected ones inverted (as HTML: in a frame), so that nothing depends on colour alone.
Token text is foreign: no escape sequence, markup or tag in it has any effect.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.style import Style
from rich.text import Text

from divtok.errors import DataError
from divtok.records import Verdict
from divtok.report.marks import (
    NOT_KNOWN,
    marked,
    means_divergent,
    means_unexpected,
    summary,
    with_newlines_seen,
)
from divtok.score.estimators.guarded import GUARD
from divtok.screen import visible

# From pale to the vermillion of the Okabe-Ito palette; black text stays readable on all of it.
_PALE = (255, 246, 225)
_STRONG = (232, 110, 30)
_UNEXPECTED = "#0072b2"  # the blue of the same palette
_UNEXPECTED_PALE, _UNEXPECTED_FRAME = "#cfe8ff", "#003a5d"  # the frame is seen on pale and strong
_FAINTEST = 0.05  # bits; below this a token stays plain, or a page would be all colour
_LONGEST_FIELD = 300
_VERDICT_STYLE = {
    Verdict.CORRECT.value: "bold green",
    Verdict.INCORRECT.value: "bold red",
}


@dataclass(frozen=True, slots=True)
class TrajectoryHeader:
    """What is known of a trajectory besides its tokens; None where it is not known."""

    question: str | None = None
    answer: str | None = None
    gold: str | None = None
    verdict: str | None = None
    confidence: float | None = None
    estimator: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """Tokens as they are shown: [T] each. `unexpected` is None where it is not known."""

    texts: Sequence[str]
    bits: npt.NDArray[np.floating]
    divergent: npt.NDArray[np.bool_]
    excess: npt.NDArray[np.floating]
    unexpected: npt.NDArray[np.bool_] | None

    def __iter__(self) -> Iterator[tuple[str, float, float, bool, bool]]:
        """Text, divergence, excess, and whether it is divergent, and unexpected."""
        none = np.zeros(len(self.texts), dtype=bool)
        unexpected = none if self.unexpected is None else self.unexpected
        columns = (self.bits, self.excess, self.divergent, unexpected)
        return zip(self.texts, *(column.tolist() for column in columns), strict=True)

    @property
    def surprising(self) -> int | None:
        return None if self.unexpected is None else int(self.unexpected.sum())

    def summary(self, theta: float) -> tuple[str, str]:
        """How many are marked, and what the first mark means where that is all."""
        head = summary(int(self.divergent.sum()), self.surprising, len(self.texts))
        unknown = "" if self.unexpected is not None else f"; {NOT_KNOWN}"
        return head, "" if self.surprising else f" (more than {theta:g} bits){unknown}"


def trajectory_text(
    tokens: Sequence[str],
    jsd_bits: npt.ArrayLike,
    theta: float,
    *,
    header: TrajectoryHeader | None = None,
    reasoning: npt.ArrayLike | None = None,
    excess: npt.ArrayLike | None = None,
    guard: float = GUARD,
    brackets: bool = False,
) -> Text:
    """The header lines and the coloured tokens; rich wraps it to the width of the terminal.

    `tokens` and `jsd_bits` have T items. `reasoning` [T] (default: all True) says which tokens can
    count as divergent. `excess` [T] is their excess surprise, None where it is not known; above
    `guard` they are unexpected. With `brackets` both are marked by signs, for where no style is
    seen.
    """
    found = _tokens(tokens, jsd_bits, theta, reasoning, excess, guard)
    text = Text(overflow="fold")
    if header is not None:
        text.append_text(_header(header))
    text.append_text(_summary(found, theta, guard, brackets)).append("\n")
    return text.append_text(_marked_tokens(found, brackets))


def summary_text(
    tokens: Sequence[str],
    jsd_bits: npt.ArrayLike,
    theta: float,
    *,
    reasoning: npt.ArrayLike | None = None,
    excess: npt.ArrayLike | None = None,
    guard: float = GUARD,
    brackets: bool = False,
) -> Text:
    """How many tokens are marked and what the marks mean, as `trajectory_text` shows it."""
    found = _tokens(tokens, jsd_bits, theta, reasoning, excess, guard)
    return _summary(found, theta, guard, brackets)


def _summary(found: _Tokens, theta: float, guard: float, brackets: bool) -> Text:
    text = Text(overflow="fold")
    head, meaning = found.summary(theta)
    text.append(head, style="bold")
    text.append(f"{meaning}\n", style="dim")
    if found.surprising:
        if found.divergent.any():
            _legend(text, means_divergent(theta), brackets, divergent=True)
        _legend(text, means_unexpected(guard), brackets, unexpected=True)
    return text


def tokens_text(
    tokens: Sequence[str],
    jsd_bits: npt.ArrayLike,
    theta: float,
    *,
    reasoning: npt.ArrayLike | None = None,
    excess: npt.ArrayLike | None = None,
    guard: float = GUARD,
    brackets: bool = False,
) -> Text:
    """The coloured tokens alone, as `trajectory_text` shows them."""
    return _marked_tokens(_tokens(tokens, jsd_bits, theta, reasoning, excess, guard), brackets)


def _marked_tokens(found: _Tokens, brackets: bool) -> Text:
    text = Text(overflow="fold")
    for token, bits, _, divergent, unexpected in found:
        text.append_text(
            token_text(token, bits, divergent=divergent, unexpected=unexpected, brackets=brackets)
        )
    return text


def token_text(
    token: str, bits: float, *, divergent: bool, unexpected: bool, brackets: bool = False
) -> Text:
    """One token as `trajectory_text` shows it."""
    shown = _broken(token, divergent or unexpected)
    if brackets:
        shown = marked(shown, divergent=divergent, unexpected=unexpected)
    return Text(shown, style=_style(bits, divergent, unexpected))


def _legend(
    text: Text, meaning: str, brackets: bool, *, divergent: bool = False, unexpected: bool = False
) -> None:
    """A line that says what a mark means, its name marked so itself."""
    name = "divergent" if divergent else "unexpected"
    if brackets:
        name = marked(name, divergent=divergent, unexpected=unexpected)
    text.append(name, style=_style(0.0, divergent, unexpected))
    text.append(f": {meaning}\n", style="dim")


def html_tokens(
    tokens: Sequence[str],
    jsd_bits: npt.ArrayLike,
    theta: float,
    *,
    reasoning: npt.ArrayLike | None = None,
    excess: npt.ArrayLike | None = None,
    guard: float = GUARD,
) -> str:
    """The tokens as escaped HTML spans with inline colours: no script, no class names, no links."""
    found = _tokens(tokens, jsd_bits, theta, reasoning, excess, guard)
    spans: list[str] = []
    for token, bits, beyond, divergent, unexpected in found:
        shown_token = html.escape(_broken(token, divergent or unexpected))
        title = f"{bits:.3f} bits"
        if unexpected:
            title += f", unexpected: {beyond:.1f} nats more surprising to both than they expect"
        css = _css(bits, divergent, unexpected)
        attributes = f' style="{css}"' if css else ""
        spans.append(f'<span{attributes} title="{title}">{shown_token}</span>')
    lines = ["".join(found.summary(theta))]
    if found.surprising:
        if found.divergent.any():
            css = _css(0.0, divergent=True, unexpected=False)
            lines.append(f'<span style="{css}">divergent</span>: {means_divergent(theta)}')
        css = _css(0.0, divergent=False, unexpected=True)
        lines.append(f'<span style="{css}">unexpected</span>: {means_unexpected(guard)}')
    head = "".join(f"<p>{line}</p>" for line in lines)
    return (
        f'<div style="font-family:monospace">{head}'
        f'<div style="white-space:pre-wrap">{"".join(spans)}</div></div>'
    )


def _tokens(
    tokens: Sequence[str],
    jsd_bits: npt.ArrayLike,
    theta: float,
    reasoning: npt.ArrayLike | None,
    excess: npt.ArrayLike | None,
    guard: float,
) -> _Tokens:
    size = len(tokens)
    divergence = np.asarray(jsd_bits)
    countable = np.ones(size, dtype=bool) if reasoning is None else np.asarray(reasoning)
    beyond = np.zeros(size) if excess is None else np.asarray(excess)
    if any(array.shape != (size,) for array in (divergence, countable, beyond)):
        raise DataError(
            f"There are {size} tokens, but divergences of shape {divergence.shape}, a mask of "
            f"shape {countable.shape} and surprises of shape {beyond.shape}.",
            next_step="Decode the token ids the trace was made from.",
        )
    divergent = (divergence > theta) & countable.astype(bool)
    return _Tokens(
        tokens, divergence, divergent, beyond, None if excess is None else beyond > guard
    )


def _header(header: TrajectoryHeader) -> Text:
    text = Text()

    def line(name: str, value: str | None, style: str = "") -> None:
        text.append(f"{name:<11}", style="dim")
        text.append("—" if value is None else _short(visible(value)), style=style)
        text.append("\n")

    line("question", header.question)
    line("answer", header.answer, "bold")
    line("gold", header.gold)
    line("verdict", header.verdict, _VERDICT_STYLE.get(header.verdict or "", ""))
    confidence = None if header.confidence is None else f"{header.confidence:.3f}"
    if confidence is not None and header.estimator is not None:
        confidence += f" ({header.estimator})"
    line("confidence", confidence, "bold")
    return text


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_FIELD else text[: _LONGEST_FIELD - 1] + "…"


def _broken(token: str, is_marked: bool) -> str:
    text = visible(token, keep="\n")
    return with_newlines_seen(text) if is_marked else text


def _style(bits: float, divergent: bool, unexpected: bool) -> Style:
    mark = Style(bold=True, underline=True) if divergent else Style()
    if unexpected:  # inverted: white on blue, and without colours still inverted
        return mark + Style(color=_UNEXPECTED, bgcolor="#ffffff", reverse=True)
    return mark if bits < _FAINTEST else mark + Style(color="#000000", bgcolor=_hex(bits))


def _css(bits: float, divergent: bool, unexpected: bool) -> str:
    background = _hex(bits) if bits >= _FAINTEST else _UNEXPECTED_PALE if unexpected else None
    css = "" if background is None else f"background:{background};color:#000;"
    if divergent:
        css += "font-weight:bold;text-decoration:underline;"
    if unexpected:  # apart from its neighbours, which may be one character each
        css += f"border:2px solid {_UNEXPECTED_FRAME};border-radius:3px;margin:0 1px;"
    return css


def _hex(bits: float) -> str:
    share = min(bits, 1.0)  # rounding can take a divergence a hair above 1
    mix = (round(a + (b - a) * share) for a, b in zip(_PALE, _STRONG, strict=True))
    return "#" + "".join(f"{c:02x}" for c in mix)
