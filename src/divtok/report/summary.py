"""The first page of a report: in plain words, what is there and what to look at.

Says only what the figures say; every statement is computed from the evaluations given. The words
are in readme.md.j2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from divtok.evaluate.equal_length import CountAtEqualLength
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.overall import Overall
from divtok.evaluate.protocol import FEWEST_OF_A_CLASS, Protocol
from divtok.records import Evaluation
from divtok.report.metric_table import METRICS
from divtok.report.note import FEW_LINES, Note
from divtok.report.part import Part
from divtok.report.render import shown, to_markdown
from divtok.report.tables import (
    Bounded,
    ReportColumn,
    ReportRow,
    ReportTable,
    by_group,
    in_order,
    label,
)
from divtok.report.text import markdown


def readme(
    *,
    title: str,
    evaluations: Sequence[Evaluation],
    overall: Sequence[Overall],
    tables: Mapping[str, ReportTable],
    equal_length: Mapping[tuple[str, str], CountAtEqualLength],
    parts: Sequence[Part],
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
        fewest=FEWEST_OF_A_CLASS,
        prevalence=[line for n in notes if n.key == "overconfidence" for line in n.lines],
        responses=sum(members[0].n for members in groups.values()),
        benchmarks=dict.fromkeys(benchmark for benchmark, _ in groups),
        generators=dict.fromkeys(generator for _, generator in groups),
        estimators=len({e.estimator for e in evaluations}),
        evaluations=len(evaluations),
        missing=sum(e.ece is None and e.auroc is None for e in evaluations),
        clipped=sum(e.clipped for e in evaluations),
        best=_best_of_all(evaluations, overall, labels),
        few=_few(evaluations),
        sections=[*sections, *(n.markdown() for n in notes if n.lines)],
        left_out=[_left_out(group, members, labels) for group, members in groups.items()],
        equal_length=_equal_length(equal_length),
        base_rate="base-rate" in tables,
        parts=[part.about for part in parts],
        said=[line for part in parts for line in part.short],
        figures=figures,
        theta_fits=theta_fits,
        protocol=protocol,
        formats=formats,
    )


def _best_of_all(
    evaluations: Sequence[Evaluation],
    overall: Sequence[Overall],
    labels: Mapping[str, str] | None,
) -> list[str]:
    """The best of each metric, in words: natural prevalence first."""
    several = len(by_group(evaluations)) > 1
    lines: list[str] = []
    for metric, words in METRICS.items():
        name = f"{'mean ' if several else ''}{words.title}"
        which = "Lowest" if words.better == "lower" else "Highest"
        best = _best(evaluations, metric)
        if best is None:
            lines.append(f"{which} {name}: no estimator has it for every generator and benchmark.")
            continue
        column = ReportColumn(metric, name, words.kind)
        found = next((one for one in overall if one.estimator == best[0]), None)
        ends = None if words.balanced or found is None else getattr(found, f"{metric}_interval")
        figure = shown(ReportRow(()), column, Bounded(best[1], ends), dash="")
        unit = " %" if words.kind == "percent" else ""
        lines.append(f"{which} {name}: {label(best[0], labels)}, {figure}{unit}.")
    return lines


def _best(evaluations: Sequence[Evaluation], metric: str) -> tuple[str, float] | None:
    """The best mean over groups, among the estimators that have a figure in every group."""
    groups = by_group(evaluations).keys()
    means: dict[str, float] = {}
    for name in in_order(e.estimator for e in evaluations):
        figures = {
            (e.benchmark, e.generator): getattr(e, metric)
            for e in evaluations
            if e.estimator == name and getattr(e, metric) is not None
        }
        if figures.keys() == groups:
            means[name] = fmean(figures.values())
    if not means:
        return None
    best = (max if metric == "auroc" else min)(means, key=lambda name: means[name])
    return best, means[best]


def _few(evaluations: Sequence[Evaluation]) -> tuple[int, int]:
    """Groups whose balanced draws are too small for a result, and all groups."""
    groups = by_group(evaluations).values()
    few = sum(max(e.n_balanced for e in members) < FEWEST_OF_A_CLASS for members in groups)
    return few, len(groups)


def _equal_length(found: Mapping[tuple[str, str], CountAtEqualLength]) -> list[str]:
    """What the count adds to length: a line for each group, or one for all where they are many."""
    if len(found) <= FEW_LINES:
        return [
            _at_equal_length(c, f"{generator} on {benchmark}")
            for (benchmark, generator), c in found.items()
        ]
    known = [c for c in found.values() if c.count_within is not None]
    if not known:
        return ["At equal length: not known for any generator and benchmark."]
    within, over, length = (
        _range([getattr(c, name) for c in known]) for name in ("count_within", "count", "length")
    )
    return [
        f"At equal length the count has an AUROC of {within} ({len(known)} of {len(found)} groups; "
        f"{over} over all lengths, length alone {length})."
    ]


def _at_equal_length(c: CountAtEqualLength, where: str) -> str:
    if c.count_within is None:
        return f"At equal length, {where}: not known ({c.reason})."
    return (
        f"At equal length the count has an AUROC of {_percent(c.count_within)} ({where}; "
        f"{_percent(c.count)} over all lengths, length alone {_percent(c.length)})."
    )


def _range(values: Sequence[float | None]) -> str:
    there = [value for value in values if value is not None]
    return f"{100 * min(there):.1f} to {_percent(max(there))}" if there else "—"


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
