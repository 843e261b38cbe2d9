"""The report of a GPU as a block of docs/performance.md: tables of speed, a line for each check."""

from __future__ import annotations

from collections.abc import Sequence

from perf.gpu.findings import Fact, Finding, Report
from perf.page import made, table

NAME = "gpu"
SPEED = {
    "pair": "Reading, tokens a second:",
    "generation": "Writing, seconds:",
    "speculative": "Writing and tracing, tokens a second; `k` tokens are drafted in a round:",
    "head stage": "The output layers of both models and all numbers of a token:",
}
CHECKS = {
    "whole run": "A whole run of the embedded family beside the same on the CPU",
    "writing": "Steps against whole models, and tokens written in float32 against the CPU's",
    "while writing": "Traces that come with the writing, beside a pass over the text, in float32",
    "reading": "Packs against each response alone",
    "refusing": "Models made wrong on purpose, in bfloat16",
    "kernels": "The kernel against float64",
}


def block(report: Report | None) -> str:
    if report is None:
        return "Not measured yet: `make gpu` on a machine with a GPU."
    parts = [f"Commit {report.commit}. {made('make gpu', report.date, report.machine)}"]
    for check, about in SPEED.items():
        if report.of(check):
            parts += [about, _table(report.of(check))]
    lines = [_line(about, report.of(check)) for check, about in CHECKS.items() if report.of(check)]
    return "\n\n".join([*parts, "\n".join(lines)])


def _table(findings: Sequence[Finding]) -> str:
    """A row for each finding, a column for each fact."""
    names = list(dict.fromkeys(name for finding in findings for name in finding.facts))
    rows = [
        [
            finding.name,
            *(_cell(finding.facts.get(name)) for name in names),
            {True: "met", False: "**missed**", None: ""}[finding.holds],
        ]
        for finding in findings
    ]
    return table(["", *names, "aim"], rows)


def _line(about: str, findings: Sequence[Finding]) -> str:
    """How many checks hold, and the largest value of every fact that is a number."""
    held = sum(finding.holds is True for finding in findings)
    largest: dict[str, float] = {}
    for finding in findings:
        for name, fact in finding.facts.items():
            if not isinstance(fact, bool | str):
                largest[name] = max(fact, largest.get(name, fact))
    facts = ", ".join(f"{name} {_cell(fact)}" for name, fact in largest.items())
    most = f" Largest: {facts}." if facts else ""
    return f"- {about}: {held} of {len(findings)} checks hold.{most}"


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
