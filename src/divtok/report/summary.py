"""The first page of a report: in plain words, what is there and what to look at.

Says only what the figures say; every statement is computed from the evaluations given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from divtok.evaluate.equal_length import CountAtEqualLength
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.protocol import Protocol
from divtok.records import Evaluation
from divtok.report.labels import in_order, label
from divtok.report.notes import Note
from divtok.report.render import to_markdown
from divtok.report.tables import ReportTable
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
    parts = [
        f"# {markdown(title)}",
        _intro(evaluations),
        "## What to look at",
        _pointers(bool(equal_length), bool(figures)),
        "## In short",
        "\n".join(f"- {s}" for s in _findings(evaluations, equal_length, theta_fits, labels)),
        *(to_markdown(table).rstrip() for table in tables.values()),
        *(note.markdown() for note in notes if note.lines),
    ]
    if figures:
        parts += ["## Figures", _figure_list(figures, formats)]
    parts += ["## How the figures were made", _method(evaluations, protocol, labels)]
    return "\n\n".join(parts) + "\n"


def _intro(evaluations: Sequence[Evaluation]) -> str:
    groups = {(e.benchmark, e.generator): e.n for e in evaluations}
    benchmarks = dict.fromkeys(b for b, _ in groups)
    generators = dict.fromkeys(g for _, g in groups)
    return (
        f"{sum(groups.values())} responses of {', '.join(map(markdown, generators))} on "
        f"{', '.join(map(markdown, benchmarks))}, scored by "
        f"{len({e.estimator for e in evaluations})} estimators of confidence."
    )


def _pointers(equal_length: bool, figures: bool) -> str:
    lines = [
        "- `tables/ece.*`: can a confidence be read as a chance of being right? Lower is better.",
        "- `tables/auroc.*`: are right answers ranked above wrong ones? Higher is better; 50 is a "
        "coin toss. Compare with the length of the response: an estimator that does not beat it "
        "tells little more than that.",
    ]
    if equal_length:
        lines.append(
            "- `tables/equal-length.*`: what the count of divergent tokens adds among responses "
            "of about the same length."
        )
    lines.append(
        "- `tables/all.csv`: every figure as a fraction, with sd, intervals, natural prevalence "
        "and what was left out."
    )
    if figures:
        lines.append("- `figures/`: each image has its plotted numbers beside it as `.json`.")
    return "\n".join(lines)


def _findings(
    evaluations: Sequence[Evaluation],
    equal_length: Mapping[tuple[str, str], CountAtEqualLength],
    theta_fits: Mapping[str, ThetaFit],
    labels: Mapping[str, str] | None,
) -> list[str]:
    lines = [
        _best(evaluations, "ece", "Lowest mean ECE", labels),
        _best(evaluations, "auroc", "Highest mean AUROC", labels),
    ]
    for (benchmark, generator), c in equal_length.items():
        where = f"{markdown(generator)} on {markdown(benchmark)}"
        if c.count_within is None:
            lines.append(f"At equal length, {where}: not known ({c.reason}).")
        else:
            lines.append(
                f"At equal length the count has an AUROC of {_percent(c.count_within)} ({where}; "
                f"{_percent(c.count)} over all lengths, length alone {_percent(c.length)})."
            )
    for name, fit in theta_fits.items():
        edge = " This is the end of the grid: try a wider one." if fit.at_edge else ""
        lines.append(
            f"Theta fitted for {markdown(name)}: {fit.theta:g}, on {fit.n} responses "
            f"({fit.excluded} left out).{edge}"
        )
    missing = sum(1 for e in evaluations if e.ece is None and e.auroc is None)
    if missing:
        lines.append(
            f"{missing} of {len(evaluations)} evaluations have no balanced figures; the column "
            "`reason` of `tables/all.csv` says why."
        )
    return lines


def _best(
    evaluations: Sequence[Evaluation], metric: str, what: str, labels: Mapping[str, str] | None
) -> str:
    """The best mean over groups, among the estimators that have a figure in every group."""
    groups = {(e.benchmark, e.generator) for e in evaluations}
    means: dict[str, float] = {}
    for name in in_order((e.estimator for e in evaluations), labels):
        figures = {
            (e.benchmark, e.generator): getattr(e, metric)
            for e in evaluations
            if e.estimator == name and getattr(e, metric) is not None
        }
        if set(figures) == groups:
            means[name] = fmean(figures.values())
    if not means:
        return f"{what}: no estimator has a figure for every generator and benchmark."
    pick = min if metric == "ece" else max
    name = pick(means, key=lambda k: means[k])
    return f"{what}: {markdown(label(name, labels))}, {_percent(means[name])}."


def _figure_list(figures: Sequence[tuple[str, str]], formats: Sequence[str]) -> str:
    if "png" not in formats:
        return "\n".join(f"- `figures/{stem}.{formats[0]}`: {markdown(c)}" for stem, c in figures)
    return "\n\n".join(f"![{markdown(c)}](figures/{stem}.png)" for stem, c in figures)


def _method(
    evaluations: Sequence[Evaluation], protocol: Protocol, labels: Mapping[str, str] | None
) -> str:
    clipped = sum(e.clipped for e in evaluations)
    lines = [
        f"- ECE and AUROC: {protocol.describe()}. Scores are untouched; each draw holds as many "
        "right as wrong responses, however hard the benchmark is.",
        "- Accuracy counts every sampled response.",
        f"- Intervals: 95 %, {protocol.resamples} bootstrap resamples of whole problems, seed "
        f"{protocol.seed}, at natural prevalence.",
        "- Length, count and ratio only rank; they have no ECE.",
        f"- {clipped} values outside 0 to 1 were clipped for ECE and Brier.",
    ]
    lines += [_left_out(where, members, labels) for where, members in _by_group(evaluations)]
    return "\n".join(lines)


def _by_group(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[Evaluation]]]:
    groups: dict[tuple[str, str], list[Evaluation]] = {}
    for e in evaluations:
        groups.setdefault((e.benchmark, e.generator), []).append(e)
    return [(f"{markdown(g)} on {markdown(b)}", members) for (b, g), members in groups.items()]


def _left_out(where: str, members: Sequence[Evaluation], labels: Mapping[str, str] | None) -> str:
    """Grading excludes the same responses for every estimator; only `unscored` is its own."""
    shared = [
        f"{count} {reason}"
        for reason, count in members[0].excluded_by.items()
        if count and reason != "unscored"
    ]
    line = f"- {where}: {members[0].n} responses; left out of ECE and AUROC: "
    line += (", ".join(shared) or "none") + "."
    unscored = [
        f"{markdown(label(e.estimator, labels))} {e.excluded_by['unscored']}"
        for e in members
        if e.excluded_by.get("unscored")
    ]
    return line + (f" Further unscored: {', '.join(unscored)}." if unscored else "")


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{value * 100:.1f} %"
