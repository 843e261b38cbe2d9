"""The first page of a report: in plain words, what is there and what to look at.

Says only what the figures say; every statement is computed from the evaluations given. The words
are in readme.md.j2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from divtok.evaluate.equal_length import CountAtEqualLength
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.protocol import Protocol
from divtok.records import Evaluation
from divtok.report.notes import Note
from divtok.report.render import to_markdown
from divtok.report.tables import ReportTable, by_group, in_order, label
from divtok.report.text import markdown


def readme(
    *,
    title: str,
    evaluations: Sequence[Evaluation],
    tables: Mapping[str, ReportTable],
    equal_length: Mapping[tuple[str, str], CountAtEqualLength],
    figures: Sequence[tuple[str, str]],
    notes: Sequence[Note],
    theta_fits: Mapping[str, ThetaFit],
    protocol: Protocol,
    labels: Mapping[str, str] | None,
    formats: Sequence[str],
) -> str:
    """The Markdown text of the page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("divtok.report", "."),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters |= {"markdown": markdown, "percent": _percent}
    groups = by_group(evaluations)
    sections = [to_markdown(table).rstrip() for table in tables.values()]
    return pages.get_template("readme.md.j2").render(
        title=title,
        responses=sum(members[0].n for members in groups.values()),
        benchmarks=dict.fromkeys(benchmark for benchmark, _ in groups),
        generators=dict.fromkeys(generator for _, generator in groups),
        estimators=len({e.estimator for e in evaluations}),
        evaluations=len(evaluations),
        missing=sum(e.ece is None and e.auroc is None for e in evaluations),
        clipped=sum(e.clipped for e in evaluations),
        best_ece=_best(evaluations, "ece", labels),
        best_auroc=_best(evaluations, "auroc", labels),
        sections=[*sections, *(note.markdown() for note in notes if note.lines)],
        left_out=[_left_out(group, members, labels) for group, members in groups.items()],
        equal_length=equal_length,
        figures=figures,
        theta_fits=theta_fits,
        protocol=protocol,
        formats=formats,
    )


def _best(
    evaluations: Sequence[Evaluation], metric: str, labels: Mapping[str, str] | None
) -> tuple[str, float] | None:
    """The best mean over groups, among the estimators that have a figure in every group."""
    groups = by_group(evaluations).keys()
    means: dict[str, float] = {}
    for name in in_order((e.estimator for e in evaluations), labels):
        figures = {
            (e.benchmark, e.generator): getattr(e, metric)
            for e in evaluations
            if e.estimator == name and getattr(e, metric) is not None
        }
        if figures.keys() == groups:
            means[name] = fmean(figures.values())
    if not means:
        return None
    best = (min if metric == "ece" else max)(means, key=lambda name: means[name])
    return label(best, labels), means[best]


def _left_out(
    group: tuple[str, str], members: Sequence[Evaluation], labels: Mapping[str, str] | None
) -> str:
    """Grading excludes the same responses for every estimator; only `unscored` is its own."""
    benchmark, generator = map(markdown, group)
    first = members[0]
    shared = [
        f"{n} {reason}" for reason, n in first.excluded_by.items() if n and reason != "unscored"
    ]
    unscored = [
        f"{markdown(label(e.estimator, labels))} {e.excluded_by['unscored']}"
        for e in members
        if e.excluded_by.get("unscored")
    ]
    return (
        f"{generator} on {benchmark}: {first.n} responses; left out of ECE and AUROC: "
        f"{', '.join(shared) or 'none'}."
        + (f" Further unscored: {', '.join(unscored)}." if unscored else "")
    )


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value * 100:.1f} %"
