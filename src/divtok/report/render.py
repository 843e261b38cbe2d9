"""A table as Markdown, LaTeX (booktabs) or CSV. Pure functions from a value to text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence

from divtok.errors import DataError
from divtok.report.tables import Cell, ReportColumn, ReportRow, ReportTable, rank_marks
from divtok.report.text import csv_text, latex, markdown
from divtok.screen import visible


def shown(value: Cell, column: ReportColumn, *, dash: str, signed: bool = False) -> str:
    """A cell as printed: percent with one decimal, `dash` for a missing value."""
    if value is None:
        return dash
    if isinstance(value, str):
        return value
    _check_finite(value, column)
    sign = "+" if signed else ""
    return f"{value * 100:{sign}.1f}" if column.kind == "percent" else f"{value:{sign}d}"


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
    return "\n".join([*lines, "", markdown(table.caption), ""])


def to_latex(table: ReportTable) -> str:
    """A `table` environment that needs booktabs; best bold, second underlined."""
    layout = "".join("l" if c.kind == "text" else "r" for c in table.columns)
    lines = [
        "% Needs \\usepackage{booktabs}.",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{latex(table.title)}. {latex(table.caption)}}}",
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
    writer.writerow((["benchmark"] if sections else []) + [_csv_text(c.key) for c in table.columns])
    for row in table.rows:
        if row.is_mean:
            continue
        first: list[str] = [_csv_text(row.section or "")] if sections else []
        writer.writerow(
            first + [_csv_cell(v, c) for v, c in zip(row.cells, table.columns, strict=True)]
        )
    return out.getvalue()


RENDERERS: Mapping[str, Callable[[ReportTable], str]] = {
    "md": to_markdown,
    "csv": to_csv,
    "tex": to_latex,
}


def _csv_cell(value: Cell, column: ReportColumn) -> str:
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
        text = shown(value, column, dash=dash, signed=row.signed)
        if isinstance(value, str):
            text = escape(text)
        cells.append(marks[rank - 1].format(text) if rank else text)
    return cells
