"""Write a report folder: tables, figures with their numbers, and a page that says what to look at.

Takes evaluations and scored groups, already computed or read; opens no run and loads no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from divtok.errors import NothingScoredError
from divtok.evaluate.agreement import Judged
from divtok.evaluate.base_rate import BaseRate
from divtok.evaluate.curves import count_curve, reliability_of
from divtok.evaluate.equal_length import CountAtEqualLength, count_in_group
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.overall import Overall
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.scored_group import ScoredGroup
from divtok.json_text import json_text
from divtok.records import Evaluation
from divtok.report.base_rate import base_rate_table
from divtok.report.figures import (
    CountDisplay,
    Display,
    MadeOf,
    ReliabilityDisplay,
    ThetaDisplay,
    save_figure,
)
from divtok.report.long_table import long_table
from divtok.report.metric_table import METRICS, metric_table
from divtok.report.note import Note
from divtok.report.overview_table import overview_table
from divtok.report.part import Drawn, Part
from divtok.report.render import RENDERERS, to_csv
from divtok.report.summary import readme
from divtok.report.tables import ReportColumn, ReportRow, ReportTable, in_order
from divtok.report.text import slug
from divtok.store.atomic import make_folder, write_text_atomically


@dataclass(frozen=True, slots=True)
class Report:
    """What was written, relative to `folder`, the page to start with first."""

    folder: Path
    files: tuple[Path, ...]


def write_report(
    folder: Path,
    *,
    evaluations: Sequence[Evaluation],
    groups: Sequence[ScoredGroup] = (),
    overall: Sequence[Overall] = (),
    base_rates: Sequence[BaseRate] = (),
    parts: Sequence[Part] = (),
    notes: Sequence[Note] = (),
    disagreements: Sequence[Judged] | None = None,
    theta_fits: Mapping[str, ThetaFit] | None = None,
    protocol: Protocol | None = None,
    labels: Mapping[str, str] | None = None,
    title: str = "Report",
    formats: Sequence[str] = ("png", "svg"),
) -> Report:
    """Write tables/, figures/ and README.md under `folder`; each file appears whole or not at all.

    `evaluations` fill the tables, with `overall` for what is said of all groups together; `groups`
    (the same responses) give the reliability diagrams, the accuracy by count and the comparison at
    equal length; `base_rates` tell of confidences stated for the base rate that agreement suggests;
    `parts` are what only some runs have, such as votes among several samples;
    `notes` are sections of the page, what to keep in mind; `disagreements`, where our verdicts were
    compared with another tool's, are a table and JSON; `theta_fits` maps a name, such as a
    generator's, to its fit. README.md is written last, so that it never points at missing files.
    """
    if not evaluations:
        raise NothingScoredError(
            "There is no evaluation to report.", next_step="Run the evaluate stage first."
        )
    protocol = protocol or Protocol()
    equal_length = {(g.benchmark, g.generator): count_in_group(g) for g in groups}
    compared = {k: v for k, v in equal_length.items() if v is not None}
    overview = overview_table(
        evaluations, overall, protocol=protocol, labels=labels, base_rates=base_rates
    )
    tables = {"overview": overview}
    for metric in METRICS:
        tables[metric.replace("_", "-")] = metric_table(
            evaluations, metric, protocol=protocol, labels=labels, overall=overall
        )
    if base_rates:
        tables["base-rate"] = base_rate_table(base_rates, labels=labels)
    if compared:
        tables["equal-length"] = equal_length_table(compared)
    for part in parts:
        tables |= part.tables
    texts = {
        f"{name}.{suffix}": render(table)
        for name, table in tables.items()
        for suffix, render in RENDERERS.items()
    }
    if disagreements is not None:
        table = disagreement_table(disagreements)
        texts |= {f"disagreements.{s}": render(table) for s, render in RENDERERS.items()}
        texts["disagreements.json"] = json_text([asdict(row) for row in disagreements], indent=2)
    texts["all.csv"] = to_csv(long_table(evaluations, protocol=protocol))
    make_folder(folder / "tables")
    if disagreements is None:  # those of an earlier report are no longer asked for
        for stale in (folder / "tables").glob("disagreements.*"):
            stale.unlink()
    written: list[Path] = []
    for name, text in texts.items():
        written.append(folder / "tables" / name)
        write_text_atomically(written[-1], text)
    figures: list[tuple[str, str]] = []
    drawn = [*_displays(groups, theta_fits or {}, protocol, labels)]
    drawn += [figure for part in parts for figure in part.figures]
    for stem, caption, display in _with_stems(drawn):
        written += save_figure(display, folder / "figures" / stem, formats=formats)
        figures.append((stem, caption))
    page = readme(
        title=title,
        evaluations=evaluations,
        overall=overall,
        tables=tables,
        equal_length=compared,
        parts=parts,
        figures=figures,
        notes=notes,
        theta_fits=theta_fits or {},
        protocol=protocol,
        labels=labels,
        formats=formats,
    )
    first = folder / "README.md"
    write_text_atomically(first, page)
    return Report(folder, tuple(p.relative_to(folder) for p in (first, *written)))


def disagreement_table(rows: Sequence[Judged]) -> ReportTable:
    """The responses on which our verdict and another tool's differ, with what each read."""
    names = {
        "generator": "Generator",
        "problem_id": "Problem",
        "key": "Key",
        "gold": "Gold",
        "ours_extracted": "Our answer",
        "ours": "Our verdict",
        "scorer": "Scorer",
        "theirs_extracted": "Their answer",
        "theirs": "Their verdict",
    }
    columns = tuple(ReportColumn(key, label) for key, label in names.items())
    cells = [tuple(getattr(row, name) for name in names) for row in rows]
    return ReportTable(
        "Verdicts that differ",
        columns,
        tuple(ReportRow(c, section=row.benchmark) for c, row in zip(cells, rows, strict=True)),
        "Ours are divtok's, theirs those of the tool that the responses come from. An unanswered "
        "response agrees with an incorrect one; undecided ones are not compared.",
    )


def equal_length_table(found: Mapping[tuple[str, str], CountAtEqualLength]) -> ReportTable:
    """What the count adds at equal length, one row for each benchmark and generator."""
    columns = (
        ReportColumn("generator", "Generator"),
        ReportColumn("n", "Responses", "integer"),
        ReportColumn("length_auroc", "Length", "percent"),
        ReportColumn("count_auroc", "Count", "percent"),
        ReportColumn("length_within", "Length, equal length", "percent"),
        ReportColumn("count_within", "Count, equal length", "percent"),
        ReportColumn("usable_bins", "Usable bins", "integer"),
        ReportColumn("reason", "Reason"),
    )
    rows: list[ReportRow] = []
    for (benchmark, generator), c in found.items():
        figures = (c.n, c.length, c.count, c.length_within, c.count_within, c.usable_bins, c.reason)
        rows.append(ReportRow((generator, *figures), section=benchmark))
    caption = (
        "AUROC in percent at natural prevalence. 'Equal length' compares only responses of the "
        "same length quintile, weighted by the pairs of correct and incorrect responses in it; "
        "50 means nothing is added there. Usable bins hold both kinds."
    )
    return ReportTable("What the count adds at equal length", columns, tuple(rows), caption)


def _with_stems(drawn: Sequence[Drawn]) -> Iterator[tuple[str, str, Display]]:
    """File stem, caption and figure, with stems that differ even where names look alike."""
    taken: set[str] = set()
    for one in drawn:
        stem = base = f"{one.kind}-{slug(one.name)}"
        number = 2
        while stem.casefold() in taken:
            stem, number = f"{base}-{number}", number + 1
        taken.add(stem.casefold())
        yield stem, one.caption, one.display


def _displays(
    groups: Sequence[ScoredGroup],
    theta_fits: Mapping[str, ThetaFit],
    protocol: Protocol,
    labels: Mapping[str, str] | None,
) -> Iterator[Drawn]:
    """The figures that every run has."""
    for group in groups:
        name = f"{group.generator} on {group.benchmark}"
        order = in_order((c.estimator for c in group.columns), labels)
        columns = sorted(group.columns, key=lambda c: order.index(c.estimator))
        curves = [reliability_of(group, c, protocol) for c in columns if not c.ranking_only]
        if curves:
            display = ReliabilityDisplay.of(name, curves, labels, about=MadeOf.of(group))
            yield Drawn("reliability", name, f"reliability of each estimator, {name}", display)
        points = count_curve(group)
        if any(p.n for p in points):
            by_count = CountDisplay(name, points, MadeOf.of(group))
            yield Drawn("count", name, f"accuracy by number of divergent tokens, {name}", by_count)
    for name, fit in theta_fits.items():
        caption = f"ECE and AUROC against theta, {name}"
        yield Drawn("theta", name, caption, ThetaDisplay(name, fit))
