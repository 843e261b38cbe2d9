"""The report of a GPU as a block of docs/performance.md: speed first, then what was checked."""

from __future__ import annotations

from collections.abc import Sequence

from perf.gpu.findings import Fact, Finding, Report
from perf.page import made, table

NAME = "gpu"


def block(report: Report | None) -> str:
    if report is None:
        return "Not measured yet: `make gpu` on a machine with a GPU."
    parts = [f"Commit {report.commit}. {made('make gpu', report.date, report.machine)}"]
    for check, about in (
        ("pair", "Reading, tokens a second:"),
        ("generation", "Writing:"),
        ("head stage", "The output layers of both models and all numbers of a token:"),
        ("whole run", "`divtok run --family tiny`, from nothing to the report:"),
        ("reading", "How far logits of one model lie apart when it is read in two ways:"),
        ("kernels", "The kernel against float64:"),
        ("writing", "Tokens written in float32, beside the CPU's:"),
        ("refusing", "Models made wrong on purpose, in bfloat16:"),
    ):
        found = report.of(check)
        if found:
            parts += [about, _table(found)]
    return "\n\n".join(parts)


def _table(findings: Sequence[Finding]) -> str:
    """A row for each finding, a column for each fact; findings of unlike facts share no column."""
    names = list(dict.fromkeys(name for finding in findings for name in finding.facts))
    rows = [
        [
            finding.name,
            *(_cell(finding.facts.get(name)) for name in names),
            {True: "yes", False: "**no**", None: ""}[finding.holds],
        ]
        for finding in findings
    ]
    return table(["", *names, "as it must be"], rows)


def _cell(fact: Fact | None) -> str:
    if fact is None:
        return ""
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, str):
        return fact
    if isinstance(fact, int) or abs(fact) >= 1000:
        return f"{fact:,.0f}"
    return f"{fact:.3g}"
