"""The paper's tables from finished runs, with the paper's figures beside ours where it has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from divtok.errors import DataError
from divtok.evaluate.protocol import Protocol
from divtok.paper import cells
from divtok.paper.claims.blackbox import BLACKBOX
from divtok.paper.claims.blackbox import VERBALIZED as WITH_DTC
from divtok.paper.claims.listed import open_findings
from divtok.paper.claims.table_claims import found_in, of_recipe
from divtok.paper.claims.whitebox import WHITEBOX as WHITEBOX_CLAIMS
from divtok.paper.exhibit import Exhibit
from divtok.paper.published_numbers import (
    NO_ESTIMATOR,
    WHITEBOX_ESTIMATORS,
    Published,
    published,
    whitebox_average,
)
from divtok.paper.recipe import Recipe
from divtok.paper.run_tables import FinishedRun, Material, choices, short
from divtok.protocols.protocol import said_of
from divtok.protocols.wording import kind_of
from divtok.records import Evaluation
from divtok.report.metric_table import metric_table
from divtok.report.read_on import read_on
from divtok.report.tables import Cell, ReportColumn, ReportRow, ReportTable, label, supervised
from divtok.score.sets import not_in_paper

Metric = Literal["ece", "auroc"]
METRICS: tuple[Metric, ...] = ("ece", "auroc")
PROTOCOL_LABELS = {
    "cot": "Default CoT",
    "verbalized": "Verb. Conf.",
    "verbalized_top2": "Verb. TopK",
    "verbalized_distribution": "Verb. PD",
}
# What every estimator must be compared with; the paper has no such columns.
RANKINGS = ("length", "count")
WHITEBOX = (*WHITEBOX_ESTIMATORS, *RANKINGS)
# Method label, estimator (None: accuracy alone), for trajectories that state no confidence and
# for those that do.
_DTC = (("+ DTC lin", "dtc_lin"), ("+ DTC prod", "dtc_prod"))
_DTC_NAMES = tuple(name for _, name in _DTC)
_PLAIN = (("", None), ("+ PRM", "prm"), *_DTC)
_STATED = (("", "verbalized"), *_DTC)
_WITH_DTC = (("", "verbalized"), ("w/ DTC", "verbalized_dtc"))
NOT_IN_PAPER = "Not in the paper"


class Metrics(NamedTuple):
    """One method under one protocol on one benchmark; None where there is no figure."""

    accuracy: float | None = None
    ece: float | None = None
    auroc: float | None = None


# (protocol, benchmark, estimator) -> its metrics; estimator None: accuracy alone
Case = tuple[str, str, str | None]
Cases = Mapping[Case, Metrics]


def whitebox(recipe: Recipe, material: Material) -> Exhibit:
    """ECE and AUROC of every estimator, generators within benchmarks."""
    runs = material.runs(recipe)
    everything = [e for run in runs for e in run.evaluations]
    evaluations = [e for e in everything if e.estimator in WHITEBOX]
    theirs = {(p.benchmark, p.generator, p.estimator): p for p in published("whitebox")}
    # Rankings have no ECE, so the first table goes without them.
    confidences = [e for e in evaluations if e.estimator not in RANKINGS]
    shown = {"ece": confidences, "auroc": evaluations}
    protocol = runs[0].protocol
    tables = [
        *(
            _beside(
                metric_table(
                    shown[metric], metric, protocol=protocol, reference=supervised() | {*RANKINGS}
                ),
                metric,
                theirs,
                words=worded(runs),
            )
            for metric in METRICS
        ),
        # Not in the paper: whether they can be believed where not half of the responses are right.
        *(
            metric_table(confidences, metric, protocol=protocol)
            for metric in ("natural_ece", "brier")
        ),
        *_whitebox_beyond(everything, protocol),
    ]
    findings = found_in(cells_of(runs), of_recipe(WHITEBOX_CLAIMS, recipe.name))
    return Exhibit(recipe, tables=tuple(tables), findings=(*findings, *open_findings(recipe.name)))


def blackbox(recipe: Recipe, material: Material) -> Exhibit:
    """Accuracy, ECE and AUROC of each method under each protocol, benchmarks side by side."""
    runs = material.runs(recipe)
    ours = _cases(runs)
    theirs = _published_cases("blackbox", _generator(runs))
    rows = [
        (protocol, name, estimator)
        for protocol in _protocols(runs)
        for name, estimator in (_PLAIN if protocol == "cot" else _STATED)
    ]
    table = _method_table("Black-box", rows, runs, ours, theirs, with_accuracy=True)
    tables = (table, *_blackbox_beyond(runs, ours))
    findings = found_in(cells_of(runs), of_recipe(BLACKBOX, recipe.name))
    return Exhibit(recipe, tables=tables, findings=findings)


def verbalized(recipe: Recipe, material: Material) -> Exhibit:
    """The stated confidence, and the same to the power of count + k."""
    runs = material.runs(recipe)
    ours = _cases(runs)
    theirs = _published_cases("verbalized_with_dtc", _generator(runs))
    rows = [(protocol, *method) for protocol in _protocols(runs) for method in _WITH_DTC]
    title = "Stated confidence with DTC"
    table = _method_table(title, rows, runs, ours, theirs, with_accuracy=False)
    findings = found_in(cells_of(runs), of_recipe(WITH_DTC, recipe.name))
    return Exhibit(recipe, tables=(table,), findings=findings)


def cells_of(runs: Sequence[FinishedRun]) -> cells.Cells:
    """What the claims about a table compare."""
    found = [
        cells.Cell(kind_of(run.config.protocol_for(group.benchmark)), group)
        for run in runs
        for group in run.groups
    ]
    return cells.Cells(found, runs[0].protocol)


def _whitebox_beyond(
    evaluations: Sequence[Evaluation], protocol: Protocol
) -> tuple[ReportTable, ...]:
    """Estimators that the paper has no figures for, with DTC and what every one must beat.

    In tables of their own, so that in the paper's nothing stands or ranks beside its estimators
    that it does not have. None of runs that were made before there were such estimators.
    """
    beyond = not_in_paper()
    if not any(e.estimator in beyond for e in evaluations):
        return ()
    shown = [e for e in evaluations if e.estimator in (*beyond, *RANKINGS, *_DTC_NAMES)]
    return tuple(
        replace(table, title=f"{NOT_IN_PAPER}: {table.title}", caption=_said_of_beyond(table))
        for table in (metric_table(shown, metric, protocol=protocol) for metric in METRICS)
    )


def _blackbox_beyond(runs: Sequence[FinishedRun], ours: Cases) -> tuple[ReportTable, ...]:
    """The same under each protocol, in the layout of the black-box table."""
    beyond = [name for name in not_in_paper() if any(e == name for _, _, e in ours)]
    if not beyond:
        return ()
    named = [*((f"+ {label(name)}", name) for name in beyond), *_DTC]
    rows = [(protocol, *method) for protocol in _protocols(runs) for method in named]
    title = f"{NOT_IN_PAPER}: Black-box"
    table = _method_table(title, rows, runs, ours, {}, with_accuracy=False)
    return (replace(table, caption=_said_of_beyond(table)),)


def _said_of_beyond(table: ReportTable) -> str:
    return (
        f"{table.caption} Of these the paper has figures for DTC alone. DeepConf and "
        "self-certainty only rank, and have no ECE."
    )


def _beside(
    table: ReportTable,
    metric: Metric,
    theirs: Mapping[tuple[str, str, str], Published],
    *,
    words: str,
) -> ReportTable:
    """The table with the paper's row and the difference below each row that the paper has too."""
    estimators = [column.key for column in table.columns[3:]]

    def paper_row(benchmark: str, generator: str) -> tuple[Cell, ...] | None:
        found = [theirs.get((benchmark, generator, e)) for e in estimators]
        there = [p for p in found if p is not None]
        if not there:
            return None
        return (
            there[0].accuracy,
            None,
            *(None if p is None else getattr(p, metric) for p in found),
        )

    rows: list[ReportRow] = []
    theirs_shown: list[tuple[Cell, ...]] = []
    for row in table.rows:
        rows.append(row)
        generator = str(row.cells[0])
        if row.is_mean and theirs_shown:
            columns = zip(*theirs_shown, strict=True)
            means = tuple(_mean([v for v in c if isinstance(v, float)]) for c in columns)
            rows.append(ReportRow(("Mean: paper, same cells", *means), is_mean=True, ranked=False))
        paper = None if row.section is None else paper_row(row.section, generator)
        if paper is not None:
            both = zip(row.cells[1:], paper, strict=True)
            theirs_shown.append(tuple(b if isinstance(a, float) else None for a, b in both))
            differences = list(map(_difference, row.cells[1:], paper))
            rows += _paper_rows(short(generator), row, paper, differences)
    printed = whitebox_average(metric)
    averages = [printed.get("accuracy"), None, *(printed.get(name) for name in estimators)]
    rows.append(ReportRow(("Paper's average", *averages), is_mean=True, ranked=False))
    facts = [label(name) for name in estimators if name in RANKINGS]
    unranked = f" Not in the paper and not ranked: {', '.join(facts)}." if facts else ""
    caption = (
        f"{table.caption}{unranked} 'Paper' rows are the paper's own figures; its average is over "
        f"its 8 generators and 4 benchmarks, whatever rows are shown above. {words}"
    )
    return replace(table, rows=tuple(rows), caption=caption)


def _paper_rows(
    name: str, ours: ReportRow, paper: Sequence[Cell], differences: Sequence[Cell]
) -> list[ReportRow]:
    """The paper's cells for a row of ours, and ours less theirs."""
    theirs = replace(ours, cells=(f"{name}: paper", *paper), ranked=False, few=False)
    return [theirs, replace(theirs, cells=(f"{name}: ours - paper", *differences), signed=True)]


def _difference(ours: Cell, paper: Cell) -> float | None:
    """None where either is missing."""
    return ours - paper if isinstance(ours, float) and isinstance(paper, float) else None


def _method_table(
    title: str,
    methods: Sequence[tuple[str, str, str | None]],
    runs: Sequence[FinishedRun],
    ours: Cases,
    theirs: Cases,
    *,
    with_accuracy: bool,
) -> ReportTable:
    """One row a method, (protocol, name, estimator), with the figures of each benchmark in turn."""
    benchmarks = _benchmarks(runs)
    names = (("Acc",) if with_accuracy else ()) + ("ECE", "AUC")
    columns = [ReportColumn("method", "Method")]
    for benchmark in (*benchmarks, "Mean"):
        columns += [
            ReportColumn(f"{benchmark}_{n.lower()}", f"{benchmark} {n}", "percent") for n in names
        ]
    rows: list[ReportRow] = []
    for under, name, estimator in methods:
        first = PROTOCOL_LABELS[under]
        shown = f"{first} {name}".strip()
        # A row that only scores the same trajectories again has no accuracy of its own.
        accuracy = with_accuracy and not name

        def cells(
            cases: Cases, under: str = under, e: str | None = estimator, acc: bool = accuracy
        ) -> tuple[Cell, ...]:
            found = [cases.get((under, b, e), Metrics()) for b in benchmarks]
            means = tuple(_mean([one[i] for one in found]) for i in range(3))
            kept = [
                ((a if acc else None,) if with_accuracy else ()) + (ece, auroc)
                for a, ece, auroc in (*found, means)
            ]
            return tuple(value for triple in kept for value in triple)

        rows.append(ReportRow((shown, *cells(ours))))
        if any((under, b, estimator) in theirs for b in benchmarks):
            rows += _paper_rows(shown, rows[-1], cells(theirs), cells(_less(ours, theirs)))
    made = runs[0].protocol.describe()
    caption = f"Percent; {made}; mean over draws. Mean is over the benchmarks. "
    if with_accuracy:
        caption += (
            "Acc counts every sampled response and is given where the trajectories were sampled; a "
            "'+' row scores the same trajectories again. "
        )
    caption += _made(runs)
    shown = {estimator for _, _, estimator in methods}
    on = read_on([e for run in runs for e in run.evaluations if e.estimator in shown])
    caption += "".join(f" {sentence}" for sentence in on)
    heading = f"{title}: {short(_generator(runs))}"
    return ReportTable(heading, tuple(columns), tuple(rows), caption)


def _less(ours: Cases, theirs: Cases) -> Cases:
    """Ours less theirs where both have a figure: its mean is over the same benchmarks of both."""
    return {
        case: Metrics(*map(_difference, ours[case], theirs[case]))
        for case in ours.keys() & theirs.keys()
    }


def _cases(runs: Sequence[FinishedRun]) -> Cases:
    found: dict[Case, Metrics] = {}
    for run in runs:
        for e in run.evaluations:
            kind = kind_of(run.config.protocol_for(e.benchmark))
            found[kind, e.benchmark, e.estimator] = Metrics(e.accuracy, e.ece, e.auroc)
            found[kind, e.benchmark, None] = Metrics(e.accuracy)
    return found


def _published_cases(table: Literal["blackbox", "verbalized_with_dtc"], generator: str) -> Cases:
    return {
        (p.protocol, p.benchmark, None if p.estimator == NO_ESTIMATOR else p.estimator): Metrics(
            p.accuracy, p.ece, p.auroc
        )
        for p in published(table)
        if p.generator == generator
    }


def _generator(runs: Sequence[FinishedRun]) -> str:
    found = {e.generator for run in runs for e in run.evaluations}
    if len(found) != 1:
        raise DataError(
            f"A table of one generator was given the runs of {len(found)}: {sorted(found)}.",
            next_step="Name runs of one generator in the recipe.",
        )
    return found.pop()


def _benchmarks(runs: Sequence[FinishedRun]) -> list[str]:
    return list(dict.fromkeys(e.benchmark for run in runs for e in run.evaluations))


def _protocols(runs: Sequence[FinishedRun]) -> list[str]:
    there = {kind_of(name) for run in runs for name in run.config.protocols()}
    return [protocol for protocol in PROTOCOL_LABELS if protocol in there]


def worded(runs: Sequence[FinishedRun]) -> str:
    """In which words each protocol asked: beside the paper's figures it matters whose they are."""
    found = dict.fromkeys(name for run in runs for name in run.config.protocols())
    return f"Wording: {'; '.join(map(said_of, found))}." if found else ""


def _made(runs: Sequence[FinishedRun]) -> str:
    """Which pair read the text, at which theta, and what was left out."""
    config = runs[0].config
    p, q = config.pair_for(config.generator_presets()[0])
    left_out = sum(
        max(e.excluded for e in run.evaluations if e.benchmark == b)
        for run in runs
        for b in _benchmarks([run])
    )
    total = sum(len(group.problem_id) for run in runs for group in run.groups)
    parts = [
        f"Read by {short(p)} and {short(q)}, theta = {config.theta:g} bits.",
        f"Left out: {left_out} of {total} responses.",
        *choices(runs),
        worded(runs),
    ]
    return " ".join(parts)


def _mean(values: Sequence[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return sum(there) / len(there) if there else None
