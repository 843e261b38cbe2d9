"""Show tables in the terminal. Names are foreign: no escape sequence or markup in them acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from divtok.report.render import ABOUT_DASH, about_marks, shown
from divtok.report.tables import COUNTED, Bounded, ReportRow, ReportTable, rank_marks
from divtok.screen import visible

# No mark, best, second: in words of one character, which a pipe keeps.
_MARKS = (" ", "*", "'")
_MARK_STYLES = ("", "bold", "underline")


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
