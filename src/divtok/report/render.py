"""A table as Markdown, LaTeX (booktabs) or CSV. Pure functions from a value to text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence

from divtok.errors import DataError
from divtok.report.tables import (
    COUNTED,
    FEW_MARK,
    Bounded,
    Cell,
    ReportColumn,
    ReportRow,
    ReportTable,
    rank_marks,
)
from divtok.report.text import csv_text, latex, markdown
from divtok.screen import visible

ABOUT_DASH = "A dash: not defined."


def shown(row: ReportRow, column: ReportColumn, value: Cell, *, dash: str) -> str:
    """A cell as printed: percent with one decimal, `dash` for a missing value."""
    if value is None:
        return dash
    if isinstance(value, str):
        return value
    if isinstance(value, Bounded):
        return _figure(value.value, column, signed=row.signed) + shown_interval(value, column)
    mark = FEW_MARK if row.few and column.key == COUNTED else ""
    return _figure(value, column, signed=row.signed) + mark


def shown_interval(cell: Bounded, column: ReportColumn) -> str:
    """Behind the figure, with the space between them; nothing where there is none."""
    if cell.interval is None:
        return ""
    low, high = (_figure(end, column) for end in (cell.interval.low, cell.interval.high))
    return f" [{low}, {high}]"


def _figure(value: float, column: ReportColumn, *, signed: bool = False) -> str:
    _check_finite(value, column)
    sign = "+" if signed else ""
    if column.kind == "percent":
        return f"{value * 100:{sign}.1f}"
    return f"{value:{sign}.3f}" if column.kind == "fraction" else f"{value:{sign}d}"


def about_marks(table: ReportTable, best: str, second: str) -> str:
    """What the marks of best and second mean."""
    return f"Best of a {table.ranked_in} {best}, second {second}."


def to_markdown(table: ReportTable) -> str:
    """A pipe table under a heading; best in bold, second in italics."""
    sections = table.sections()
    head = (["Benchmark"] if sections else []) + [markdown(c.label) for c in table.columns]
    kinds = (["text"] if sections else []) + [c.kind for c in table.columns]
    lines = [
        f"### {markdown(table.title)}",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "|".join(" :-- " if k == "text" else " --: " for k in kinds) + "|",
    ]
    for row in table.rows:
        first = [markdown(row.section or "")] if sections else []
        cells = first + _marked(table, row, dash="—", escape=markdown, marks=("**{}**", "*{}*"))
        lines.append("| " + " | ".join(cells) + " |")
    caption = f"{table.whole_caption} {about_marks(table, 'in bold', 'in italics')} {ABOUT_DASH}"
    return "\n".join([*lines, "", markdown(caption), ""])


def to_latex(table: ReportTable) -> str:
    """A `table` environment that needs booktabs; best bold, second underlined."""
    layout = "".join("l" if c.kind == "text" else "r" for c in table.columns)
    caption = f"{table.whole_caption} {about_marks(table, 'in bold', 'underlined')} {ABOUT_DASH}"
    lines = [
        "% Needs \\usepackage{booktabs}.",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{latex(table.title)}. {latex(caption)}}}",
        f"  \\begin{{tabular}}{{{layout}}}",
        "    \\toprule",
        "    " + " & ".join(f"\\textbf{{{latex(c.label)}}}" for c in table.columns) + r" \\",
    ]
    section: str | None = None
    lines += [] if table.sections() else ["    \\midrule"]
    for row in table.rows:
        if row.section is not None and row.section != section:
            section = row.section
            span = f"\\multicolumn{{{len(table.columns)}}}{{c}}{{\\textit{{{latex(section)}}}}}"
            lines += ["    \\midrule", f"    {span} \\\\", "    \\midrule"]
        if row.is_mean:
            lines.append("    \\midrule")
        marks = (r"\textbf{{{}}}", r"\underline{{{}}}")
        cells = _marked(table, row, dash="---", escape=latex, marks=marks)
        lines.append("    " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, "    \\bottomrule", "  \\end{tabular}", "\\end{table}", ""])


def to_csv(table: ReportTable) -> str:
    """Fractions at full precision, a missing value as an empty cell, no mean row.

    Text that a spreadsheet would run as a formula gets a leading quote; numbers stay numbers.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    sections = table.sections()
    heads = [_csv_text(name) for column in table.columns for name in _csv_keys(column)]
    writer.writerow((["benchmark"] if sections else []) + heads)
    for row in table.rows:
        if row.is_mean:
            continue
        first: list[str] = [_csv_text(row.section or "")] if sections else []
        cells = zip(row.cells, table.columns, strict=True)
        writer.writerow(first + [text for v, c in cells for text in _csv_cells(v, c)])
    return out.getvalue()


RENDERERS: Mapping[str, Callable[[ReportTable], str]] = {
    "md": to_markdown,
    "csv": to_csv,
    "tex": to_latex,
}


def _csv_keys(column: ReportColumn) -> tuple[str, ...]:
    key = column.key
    return (key, f"{key}_low", f"{key}_high") if column.bounded else (key,)


def _csv_cells(value: Cell, column: ReportColumn) -> tuple[str, ...]:
    if not isinstance(value, Bounded):
        return (_csv_cell(value, column), *([""] * 2 if column.bounded else []))
    ends = value.interval
    figures = (value.value, *((None, None) if ends is None else (ends.low, ends.high)))
    return tuple(_csv_cell(figure, column) for figure in figures)


def _csv_cell(value: float | str | None, column: ReportColumn) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _csv_text(value)
    _check_finite(value, column)
    # A numpy number would print its type along with its value.
    return repr(value if isinstance(value, int) else float(value))


def _check_finite(value: float, column: ReportColumn) -> None:
    if not math.isfinite(value):
        raise DataError(
            f"Column '{column.label}' holds {value}.", next_step="A missing value must be None."
        )


def _csv_text(text: str) -> str:
    # The writer quotes a newline, but lets a bare carriage return end the row.
    return csv_text(visible(text, keep="\t\n"))


def _marked(
    table: ReportTable,
    row: ReportRow,
    *,
    dash: str,
    escape: Callable[[str], str],
    marks: Sequence[str],
) -> list[str]:
    cells: list[str] = []
    for value, column, rank in zip(row.cells, table.columns, rank_marks(table, row), strict=True):
        text = shown(row, column, value, dash=dash)
        if isinstance(value, str):
            text = escape(text)
        cells.append(marks[rank - 1].format(text) if rank else text)
    return cells
