"""Show a trajectory and a table in the terminal, and a trajectory's tokens as HTML.

The background of a token grows with its divergence; divergent tokens are also bold and underlined,
so that nothing depends on colour alone. Token text is foreign: no escape sequence, markup or tag in
it has any effect.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from divtok.errors import DataError
from divtok.records import Verdict
from divtok.report.render import ABOUT_DASH, about_marks, shown
from divtok.report.tables import COUNTED, Bounded, ReportRow, ReportTable, rank_marks
from divtok.screen import visible

# From pale to the vermillion of the Okabe-Ito palette; black text stays readable on all of it.
_PALE = (255, 246, 225)
_STRONG = (232, 110, 30)
_FAINTEST = 0.05  # bits; below this a token stays plain, or a page would be all colour
_LONGEST_FIELD = 300
# No mark, best, second: in words of one character, which a pipe keeps.
_MARKS = (" ", "*", "'")
_MARK_STYLES = ("", "bold", "underline")
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


def trajectory_text(
    tokens: Sequence[str],
    jsd_bits: npt.ArrayLike,
    theta: float,
    *,
    header: TrajectoryHeader | None = None,
    reasoning: npt.ArrayLike | None = None,
    brackets: bool = False,
) -> Text:
    """The header lines and the coloured tokens; rich wraps it to the width of the terminal.

    `tokens` and `jsd_bits` have T items. `reasoning` [T] (default: all True) says which tokens can
    count as divergent. With `brackets` these are in brackets, for where no style is seen.
    """
    divergence, divergent = _divergent(tokens, jsd_bits, theta, reasoning)
    text = Text(overflow="fold")
    if header is not None:
        text.append_text(_header(header))
    text.append(f"{int(divergent.sum())} divergent of {len(tokens)} tokens", style="bold")
    text.append(f" (more than {theta:g} bits)\n\n", style="dim")
    for token, bits, counts in zip(tokens, divergence, divergent, strict=True):
        shown_token = _broken(token, bool(counts))
        if brackets and counts:
            body = shown_token.rstrip("\n")  # a bracket on the next line would not be seen as its
            shown_token = f"[{body}]{shown_token[len(body) :]}"
        text.append(shown_token, style=_style(float(bits), bool(counts)))
    return text


def html_tokens(
    tokens: Sequence[str],
    jsd_bits: npt.ArrayLike,
    theta: float,
    *,
    reasoning: npt.ArrayLike | None = None,
) -> str:
    """The tokens as escaped HTML spans with inline colours: no script, no class names, no links."""
    divergence, divergent = _divergent(tokens, jsd_bits, theta, reasoning)
    spans: list[str] = []
    for token, bits, counts in zip(tokens, divergence, divergent, strict=True):
        style = "" if bits < _FAINTEST else f"background:{_hex(float(bits))};color:#000;"
        if counts:
            style += "font-weight:bold;text-decoration:underline;"
        shown_token = html.escape(_broken(token, bool(counts)))
        attributes = f' style="{style}"' if style else ""
        spans.append(f'<span{attributes} title="{bits:.3f} bits">{shown_token}</span>')
    summary = f"{int(divergent.sum())} divergent of {len(tokens)} tokens (more than {theta:g} bits)"
    return (
        f'<div style="font-family:monospace"><p>{summary}</p>'
        f'<div style="white-space:pre-wrap">{"".join(spans)}</div></div>'
    )


def rich_tables(tables: Sequence[ReportTable], *, width: int = 80) -> Group:
    """Tables below each other, and then once what they share."""
    shared = dict.fromkeys(sentence for table in tables for sentence in table.shared)
    shared |= dict.fromkeys(about_marks(table, *_MARKS[1:]) for table in tables)
    shared[ABOUT_DASH] = None
    parts: list[RenderableType] = []
    for table in tables:
        parts += [rich_table(table, width=width), Text()]
    return Group(*parts, Text(visible(" ".join(shared)), style="dim"))


def rich_table(table: ReportTable, *, width: int = 80) -> Group:
    """A table for the terminal, its own caption below; what it shares with others is left out.

    Best and second are bold and underlined, and marked * and ' wherever there are no styles. A
    benchmark is a line of its own above its rows, and columns without any figure are left out,
    unless none has one. Where the rest is still wider than `width`, it is cut into tables below
    each other, so that no figure is ever shortened. Intervals are shown where a row is an
    estimator, or where there is room.
    """
    # A long name, such as the path of a model, is folded before figures are.
    names = min(_width(table, 0), max(width // 2, 20))
    cuts = _cuts(table, width, names)
    if len(cuts) > 1 and table.ranked_in == "row":
        table = _without_intervals(table)
        cuts = _cuts(table, width, names)
    parts = [_part(table, columns, number, names) for number, columns in enumerate(cuts)]
    # Not as the table's own caption: a narrow table would fold it into a column of words.
    caption = [Text(visible(table.caption), style="dim")] if table.caption else []
    return Group(*parts, *caption)


def fits(table: ReportTable, width: int) -> bool:
    """Whether all columns of the table stand beside each other."""
    names = min(_width(table, 0), max(width // 2, 20))
    return len(_cuts(table, width, names)) == 1


def _without_intervals(table: ReportTable) -> ReportTable:
    rows = tuple(
        replace(row, cells=tuple(c.value if isinstance(c, Bounded) else c for c in row.cells))
        for row in table.rows
    )
    return replace(table, rows=rows)


def _cuts(table: ReportTable, width: int, names: int) -> list[list[int]]:
    """Indices of the columns of each part; all parts begin with the table's first column."""
    everything = range(len(table.columns))
    figures = [i for i in everything if table.columns[i].better is not None]
    filled = [i for i in figures if any(row.cells[i] is not None for row in table.rows)]
    shown_columns = [i for i in everything if i not in figures or i in (filled or figures)]
    parts = [[0]]
    for i in shown_columns[1:]:
        # A part has at least one column beside the first, however narrow the terminal.
        figures_width = sum(_width(table, j) for j in [*parts[-1][1:], i])
        if len(parts[-1]) > 1 and names + figures_width > width:
            parts.append([0])
        parts[-1].append(i)
    return parts


def _width(table: ReportTable, i: int) -> int:
    """The width of a column in characters, with the space before it."""
    heading = visible(table.columns[i].label)
    words = [heading] if table.columns[i].kind == "text" else heading.split()
    cells = [_cell(table, row, i) for row in table.rows]
    if i == 0:  # which also holds the names of sections
        cells += [visible(row.section) for row in table.rows if row.section is not None]
    return 1 + max(map(len, [*words, *cells]))


def _cell(table: ReportTable, row: ReportRow, i: int) -> str:
    """With its mark; a space where there could be one, so that figures stay below each other."""
    column, mark = table.columns[i], rank_marks(table, row)[i]
    text = visible(shown(row, column, row.cells[i], dash="—"))
    if column.key == COUNTED:
        return text if row.few else f"{text} "
    return text + (_MARKS[mark] if column.better is not None else "")


def _part(table: ReportTable, columns: Sequence[int], number: int, names: int) -> RichTable:
    title = visible(table.title) + (", continued" if number else "")
    out = RichTable(
        title=Text(title),
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,  # the gap between two columns is one space, and that for a mark
    )
    for i in columns:
        column = table.columns[i]
        is_text = column.kind == "text"
        words = visible(column.label).split()
        out.add_column(
            Text((" " if is_text else "\n").join(words)),  # figures are narrow, so are headings
            justify="left" if is_text else "right",
            max_width=names - 1 if i == 0 else None,
            no_wrap=i > 0,
            overflow="fold" if i == 0 else "ellipsis",
        )
    previous: str | None = None
    for row in table.rows:
        if row.section != previous:
            if previous is not None:
                out.add_section()
            if row.section is not None:
                out.add_row(Text(visible(row.section), style="italic"))
        previous = row.section
        marks = rank_marks(table, row)
        styles = ["dim" if row.few else _MARK_STYLES[marks[i]] for i in columns]
        cells = [_cell(table, row, i) for i in columns]
        out.add_row(*(Text(text, style=s) for text, s in zip(cells, styles, strict=True)))
    return out


def _divergent(
    tokens: Sequence[str], jsd_bits: npt.ArrayLike, theta: float, reasoning: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.bool_]]:
    divergence = np.asarray(jsd_bits)
    countable = np.ones(len(tokens), dtype=bool) if reasoning is None else np.asarray(reasoning)
    if divergence.shape != (len(tokens),) or countable.shape != (len(tokens),):
        raise DataError(
            f"There are {len(tokens)} tokens, but divergences of shape {divergence.shape} and a "
            f"mask of shape {countable.shape}.",
            next_step="Decode the token ids the trace was made from.",
        )
    return divergence, (divergence > theta) & countable.astype(bool)


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


def _broken(token: str, divergent: bool) -> str:
    """Newlines still break the line; a divergent one also gets a sign, or it could not be seen."""
    text = visible(token, keep="\n")
    return text.replace("\n", "↵\n") if divergent else text


def _style(bits: float, divergent: bool) -> Style:
    mark = divergent or None
    if bits < _FAINTEST:
        return Style(bold=mark, underline=mark)
    return Style(color="#000000", bgcolor=_hex(bits), bold=mark, underline=mark)


def _hex(bits: float) -> str:
    share = min(bits, 1.0)  # rounding can take a divergence a hair above 1
    mix = (round(a + (b - a) * share) for a, b in zip(_PALE, _STRONG, strict=True))
    return "#" + "".join(f"{c:02x}" for c in mix)
