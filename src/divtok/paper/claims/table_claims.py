"""Claims about tables as records: whose figures against whose, in what metric, and over what.

The rules are the same for every family, and are shown beside the verdict. A claim that does not
hold is reported like one that does, and one that the runs cannot tell is undecided (`judging`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divtok.evaluate.paired import Figure, mean_of
from divtok.paper.cells import METRIC_NAMES, Cell, Cells, Metric
from divtok.paper.claims.said import REPRODUCED, Said
from divtok.paper.exhibit import Compared, Finding
from divtok.paper.judging import SHARES, above, below, between, judged, within
from divtok.paper.published_numbers import PaperTable, published
from divtok.paper.run_tables import short
from divtok.report.tables import label

# What one comparison is made of: the mean over all cells, that of each generator or of each
# protocol, or each cell.
Each = Literal["all", "generator", "protocol", "cell"]
EACH: dict[Each, str] = {
    "all": "mean over generators and benchmarks",
    "generator": "mean over benchmarks, for every generator",
    "protocol": "mean over benchmarks, for every protocol",
    "cell": "for every protocol and benchmark",
}
# Where less is better.
LOWER: tuple[Metric, ...] = ("ece", "gap")


@dataclass(frozen=True, slots=True)
class Claim:
    """In a metric, each of `ours` is better than each of `theirs` that there is a figure of.

    `by` is how much better, at least. With `near` it is instead that they differ by at most so
    much. `hard` keeps the harder half of the benchmarks; `halfway` compares with the mean of
    `theirs`, not with each.
    """

    said: Said
    metric: Metric
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    each: Each = "all"
    near: float | None = None
    by: float = 0.0
    hard: bool = False
    halfway: bool = False

    @property
    def rule(self) -> str:
        metric, each = METRIC_NAMES[self.metric], EACH[self.each]
        ours = " and ".join(map(label, self.ours))
        theirs = label(self.theirs[0]) if len(self.theirs) == 1 else "each of the others"
        if self.halfway:
            theirs = f"halfway between {' and '.join(map(label, self.theirs))}"
        else:
            theirs = f"that of {theirs}"
        if self.hard:
            each += ", on the half of the benchmarks with the lower accuracy"
        if self.near is not None:
            most = f"within {100 * self.near:g} points of 0"
            return f"{metric} of {ours} less {theirs}, {each}: 95 % interval {most}"
        side, sign = ("below", "-") if self.metric in LOWER else ("above", "")
        bound = f"{sign}{100 * self.by:g} points" if self.by else "0"
        return (
            f"{metric} of {ours} {side} {theirs}, {each}: 95 % interval of the "
            f"difference {side} {bound}{SHARES[self.said.share]}"
        )

    def find(self, cells: Cells) -> Finding:
        if lacking := _lacking(cells, self.ours, self.metric):
            return Finding(self.said.text, self.rule, None, lacking)
        chosen = list(cells.cells)
        if self.hard:
            harder = cells.harder()
            chosen = [cell for cell in chosen if cell.group.benchmark in harder]
            if not chosen:
                number = "one benchmark alone, so none is harder than another"
                return Finding(self.said.text, self.rule, None, number)
        compared = [
            self._compared(where, difference)
            for name, members in members_of(chosen, self.each).items()
            for where, difference in self._differences(cells, name, members)
        ]
        return judged(self.said.text, self.rule, compared, share=self.said.share)

    def _differences(
        self, cells: Cells, name: str, members: Sequence[Cell]
    ) -> Iterable[tuple[str, Figure]]:
        rivals = [self.theirs] if self.halfway else [(their,) for their in self.theirs]
        several = len(self.ours) + len(rivals) > 2
        for ours in self.ours:
            for theirs in rivals:
                pairs: list[Figure] = []
                for cell in members:
                    a = cells.figure(cell, ours, self.metric)
                    found = [cells.figure(cell, their, self.metric) for their in theirs]
                    there = [b for b in found if b is not None]
                    if a is not None and len(there) == len(found):
                        pairs.append(a.less(mean_of(there)))
                if pairs:
                    models = f"{label(ours)} less {' and '.join(map(label, theirs))}"
                    parts = [models if several else "", name]
                    where = ", ".join(filter(None, parts)) or _title(self.metric)
                    yield where, mean_of(pairs)

    def _compared(self, name: str, difference: Figure) -> Compared:
        if self.near is not None:
            return within(name, difference, self.near)
        if self.metric in LOWER:
            return below(name, difference, -self.by)
        return above(name, difference, self.by)


@dataclass(frozen=True, slots=True)
class Level:
    """Each of `names` has a figure above a bound in a metric."""

    said: Said
    metric: Metric
    names: tuple[str, ...]
    bound: float
    each: Each = "all"

    @property
    def rule(self) -> str:
        return (
            f"{METRIC_NAMES[self.metric]} of {' and '.join(map(label, self.names))}, "
            f"{EACH[self.each]}: 95 % interval above {100 * self.bound:g} %"
            f"{SHARES[self.said.share]}"
        )

    def find(self, cells: Cells) -> Finding:
        if lacking := _lacking(cells, self.names, self.metric):
            return Finding(self.said.text, self.rule, None, lacking)
        compared = [
            above(where, figure, self.bound)
            for where, figure in _means(cells, self.names, self.metric, self.each, cells.cells)
        ]
        return judged(self.said.text, self.rule, compared, share=self.said.share, unit="%")


@dataclass(frozen=True, slots=True)
class Worse:
    """An estimator's ECE is higher on the harder half of the benchmarks than on the others."""

    said: Said
    name: str

    @property
    def rule(self) -> str:
        return (
            f"ECE of {label(self.name)}, mean over the half of the benchmarks with the lower "
            "accuracy less that over the others: 95 % interval above 0"
        )

    def find(self, cells: Cells) -> Finding:
        harder = cells.harder()
        hard, easy = (
            [
                figure
                for cell in cells.cells
                if (cell.group.benchmark in harder) is which
                and (figure := cells.figure(cell, self.name, "ece")) is not None
            ]
            for which in (True, False)
        )
        if not hard or not easy:
            number = f"no ECE of {label(self.name)} on harder and on easier benchmarks"
            return Finding(self.said.text, self.rule, None, number)
        difference = mean_of(hard).less(mean_of(easy))
        only = above(f"{label(self.name)}, harder less easier", difference)
        return judged(self.said.text, self.rule, [only])


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Asking for a confidence lowers accuracy, each way of asking against the plain one."""

    said: Said
    plain: str = "cot"

    @property
    def rule(self) -> str:
        return (
            "accuracy under a protocol that asks for a confidence less that of the default, mean "
            f"over benchmarks, for every protocol: 95 % interval below 0{SHARES[self.said.share]}"
        )

    def find(self, cells: Cells) -> Finding:
        by_way: dict[str, dict[tuple[str, str], Cell]] = {}
        for cell in cells.cells:
            group = cell.group
            by_way.setdefault(cell.way, {})[group.generator, group.benchmark] = cell
        default = by_way.pop(self.plain, {})
        compared: list[Compared] = []
        for way, members in by_way.items():
            both = [where for where in members if where in default]
            if both:
                differences = [
                    cells.accuracy(members[where]).less(cells.accuracy(default[where]))
                    for where in both
                ]
                compared.append(below(way, mean_of(differences)))
        nothing = "no benchmark was asked in both ways"
        share = self.said.share
        return judged(self.said.text, self.rule, compared, share=share, nothing=nothing)


@dataclass(frozen=True, slots=True)
class Number:
    """A number, or a range of numbers, that the paper measured on its own models.

    Only runs that have every generator and benchmark of the paper's `table` (or of its rows of one
    generator, where the exhibit shows one) can tell. With `less` it is about a difference. `stated`
    picks the protocols: those that ask for a confidence, or the default.
    """

    said: Said
    metric: Metric
    names: tuple[str, ...]
    low: float
    high: float
    table: PaperTable
    each: Each = "all"
    less: str | None = None
    stated: bool | None = None
    generator: str | None = None  # whom it is about, where the paper has several tables

    @property
    def rule(self) -> str:
        names = " and ".join(map(label, self.names))
        what = METRIC_NAMES[self.metric] + (f" of {names}" if self.metric != "accuracy" else "")
        if self.less is not None:
            what += f" less that of {label(self.less)}"
        digits = 100 * self.low, 100 * self.high
        paper = (
            f"{digits[0]:.1f}" if self.low == self.high else f"{digits[0]:.1f} to {digits[1]:.1f}"
        )
        return (
            f"on the paper's models: {what}, {EACH[self.each]}, within {100 * REPRODUCED:g} points "
            f"of the paper's {paper}: the whole 95 % interval"
        )

    def find(self, cells: Cells) -> Finding:
        if missing := self._missing(cells):
            return Finding(self.said.text, self.rule, None, missing)
        chosen = [
            cell for cell in cells.cells if self.stated in (None, cell.way not in ("cot", ""))
        ]
        rivals = () if self.less is None else (self.less,)
        if lacking := _lacking(cells, (*self.names, *rivals), self.metric):
            return Finding(self.said.text, self.rule, None, lacking)
        low, high = self.low - REPRODUCED, self.high + REPRODUCED
        compared = [
            between(where, figure, low, high)
            for where, figure in _means(
                cells, self.names, self.metric, self.each, chosen, less=self.less
            )
        ]
        return judged(self.said.text, self.rule, compared, unit="%")

    def _missing(self, cells: Cells) -> str | None:
        """Which of the paper's runs are not among these; None where all are."""
        there = {(cell.group.generator, cell.group.benchmark, cell.way) for cell in cells.cells}
        shown = {generator for generator, _, _ in there}
        theirs = {
            (p.generator, p.benchmark, p.protocol)
            for p in published(self.table)
            if self.stated in (None, p.protocol != "cot")
            and (self.table == "whitebox" or p.generator in shown)
            and self.generator in (None, p.generator)
        }
        if theirs and theirs <= there:
            return None
        whose = self.generator or "the paper's own models"
        return (
            f"a number about {short(whose)}: to be told from runs with every generator, benchmark "
            "and protocol behind it; these have "
            + (f"{len(theirs & there)} of {len(theirs)}" if theirs else "none of them")
        )


Record = Claim | Level | Worse | Accuracy | Number


def found_in(cells: Cells, claims: Sequence[Record]) -> tuple[Finding, ...]:
    """What the cells of a table say about claims."""
    return tuple(claim.find(cells) for claim in claims)


def of_recipe(records: Iterable[Record], recipe: str) -> tuple[Record, ...]:
    """Those that this recipe checks."""
    return tuple(record for record in records if recipe in record.said.recipes)


def members_of(chosen: Sequence[Cell], each: Each) -> dict[str, list[Cell]]:
    """The cells that each comparison is about, by its name."""
    generators = {cell.group.generator for cell in chosen}
    found: dict[str, list[Cell]] = {}
    for cell in chosen:
        group = cell.group
        model = short(group.generator)
        names: Mapping[Each, str] = {
            "all": "",
            "generator": model,
            "protocol": cell.way,
            "cell": ", ".join(
                [*([model] if len(generators) > 1 else []), cell.way, group.benchmark]
            ),
        }
        found.setdefault(names[each], []).append(cell)
    return found


def _means(
    cells: Cells,
    names: Sequence[str],
    metric: Metric,
    each: Each,
    chosen: Sequence[Cell],
    *,
    less: str | None = None,
) -> Iterable[tuple[str, Figure]]:
    """The mean figure of each estimator over the members of each comparison."""
    for name, members in members_of(chosen, each).items():
        for estimator in names:
            figures: list[Figure] = []
            for cell in members:
                figure = cells.figure(cell, estimator, metric)
                other = None if less is None else cells.figure(cell, less, metric)
                if figure is not None and (less is None or other is not None):
                    figures.append(figure if other is None else figure.less(other))
            if figures:
                said = "" if metric == "accuracy" else label(estimator)
                yield ", ".join(filter(None, [said, name])) or _title(metric), mean_of(figures)


def _lacking(cells: Cells, names: Sequence[str], metric: Metric) -> str:
    lacking = [
        label(name)
        for name in names
        if all(cells.figure(cell, name, metric) is None for cell in cells.cells)
    ]
    return f"no figure for {' and '.join(lacking)}" if lacking else ""


def _title(metric: Metric) -> str:
    return METRIC_NAMES[metric]
