"""Confidence while a response is written: how early it tells, and what stopping early saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from divtok.decide.early import THRESHOLDS, SafeStop
from divtok.decide.tries import Majority, StopAndTry
from divtok.evaluate.running import Place, RunningFigures
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.report.part import Drawn, Part
from divtok.report.tables import (
    Bounded,
    Cell,
    ReportColumn,
    ReportRow,
    ReportTable,
    in_order,
    label,
    supervised,
)

Labels = Mapping[str, str] | None

_ACROSS = 3  # panels of a figure, one for each generator
_MAJORITIES = 3  # samples, the most in the figure
_HALF, _END = Place(share=0.5), Place(share=1.0)
_SHOWN = (0.3, 0.5, 0.7, 0.9)  # thresholds in the table; all are in the figure
_SAID = 0.5  # the threshold in the sentence


def running_part(
    figures: Sequence[RunningFigures],
    stops: Sequence[SafeStop],
    tries: Sequence[StopAndTry],
    majorities: Sequence[Majority],
    labels: Labels = None,
    *,
    reason: str | None = None,
) -> Part:
    """`reason` says why there is nothing to show."""
    if not stops and not figures:
        return Part(f"Confidence while a response is written: left out, {reason}.", {})
    tables = {"running": _table(figures, "auroc", labels)} if figures else {}
    if any(one.natural_ece is not None for one in figures):
        tables["running-ece"] = _table(figures, "natural_ece", labels)
    if stops:
        tables["early-stopping"] = _stop_table(stops, tries, labels)
    drawn = _running_figures(figures, labels)
    drawn += _stop_figures(stops, tries, majorities, labels)
    return Part(
        about="`tables/running*.*`: how early each estimator tells right from wrong while a "
        "response is written. `tables/early-stopping.*`: what is saved by stopping a response "
        "that cannot be accepted any more, and by trying another one.",
        tables=tables,
        figures=tuple(drawn),
        short=(*_half_way(figures, labels), *_saved(figures, stops, tries, labels)),
    )


def place_of(figures: RunningFigures) -> Place:
    return Place(figures.share, figures.tokens)


def _table(figures: Sequence[RunningFigures], metric: str, labels: Labels) -> ReportTable:
    better = "higher" if metric == "auroc" else "lower"
    names = in_order((one.estimator for one in figures), labels)
    found = {(one.generator, place_of(one), one.estimator): one for one in figures}
    columns = (
        ReportColumn("generator", "Generator"),
        ReportColumn("after", "After"),
        ReportColumn("n", "Responses", "integer"),
        *(
            ReportColumn(
                e, label(e, labels), "percent", None if e in supervised() else better, bounded=True
            )
            for e in names
        ),
    )
    rows: list[ReportRow] = []
    for generator, place in dict.fromkeys((g, p) for g, p, _ in found):
        ones = [found.get((generator, place, name)) for name in names]
        n = max(one.n for one in ones if one is not None)
        cells = (None if one is None else _bounded(one, metric) for one in ones)
        rows.append(ReportRow((generator, str(place), n, *cells)))
    what = "AUROC" if metric == "auroc" else "Expected calibration error"
    caption = (
        f"{what} in percent of the confidence in the part of a response that is written, against "
        "the grade of the whole; mean over benchmarks, natural prevalence, 95 % intervals by "
        "problem. After a share of the response's tokens, which is known afterwards only; after a "
        "number of tokens, of the responses that are longer, which are more often wrong."
    )
    title = "AUROC" if metric == "auroc" else "ECE"
    return ReportTable(f"{title} while a response is written (%)", columns, tuple(rows), caption)


def _bounded(one: RunningFigures, metric: str) -> Cell:
    value = getattr(one, metric)
    return None if value is None else Bounded(value, getattr(one, f"{metric}_interval"))


def _stop_table(
    stops: Sequence[SafeStop], tries: Sequence[StopAndTry], labels: Labels
) -> ReportTable:
    columns = (
        ReportColumn("generator", "Generator"),
        ReportColumn("estimator", "Estimator"),
        ReportColumn("threshold", "Threshold", "fraction"),
        ReportColumn("why", "Which is"),
        ReportColumn("accepted", "Accepted", "percent"),
        ReportColumn("saved", "Tokens saved", "percent", bounded=True),
        ReportColumn("right", "Right", "percent"),
        ReportColumn("tokens", "Tokens", "percent"),
        ReportColumn("than_one", "Than one sample", "percent", bounded=True),
        ReportColumn("than_majority", "Than majority", "percent", bounded=True),
    )
    tried = {(t.generator, t.estimator, t.threshold): t for t in tries}
    rows: list[ReportRow] = []
    for stop in stops:
        if stop.threshold not in _SHOWN and stop.risk is None and not stop.floor:
            continue
        again = tried.get((stop.generator, stop.estimator, stop.threshold))
        rows.append(
            ReportRow(
                (
                    stop.generator,
                    label(stop.estimator, labels),
                    stop.threshold,
                    _why(stop),
                    stop.accepted,
                    Bounded(stop.saved, stop.interval),
                    *_again(again),
                )
            )
        )
    caption = (
        "A response is stopped as soon as its confidence, which can only fall, is below the "
        "threshold: of all tokens so many need not be written, and what is accepted stays the "
        "same."
    )
    if tries:
        caption += (
            f" The other columns: instead of a stopped response the problem's next sample is "
            f"begun, up to {tries[0].tries} in all, and the last is taken as it is. Right: answers "
            "of problems; tokens: those written, of one sample's; then how much more often it is "
            "right than one sample, and than the most frequent answer of as many samples as cost "
            "the same tokens (a mixture of two numbers of samples). Tokens that the auxiliary "
            "reads are not counted. Choose a threshold on other problems."
        )
    return ReportTable("Stopping early, and trying again (%)", columns, tuple(rows), caption)


def _why(stop: SafeStop) -> str:
    if stop.floor:
        return "the lowest there is"
    return "set" if stop.risk is None else f"promised: {100 * stop.risk:g} % wrong"


def _again(one: StopAndTry | None) -> tuple[Cell, ...]:
    if one is None:
        return (None,) * 4
    majority = one.than_majority
    return (
        one.spent.accuracy,
        one.spent.tokens / one.tokens_of_one,
        Bounded(one.than_first.change, one.than_first.interval),
        None if majority is None else Bounded(majority.change, majority.interval),
    )


def _chunks(generators: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Generators that share a figure, with a name for it."""
    starts = range(0, len(generators), _ACROSS)
    parts = [list(generators[at : at + _ACROSS]) for at in starts]
    return [("all" if len(parts) == 1 else part[0], part) for part in parts]


def _running_figures(figures: Sequence[RunningFigures], labels: Labels) -> list[Drawn]:
    names = in_order((one.estimator for one in figures), labels)
    shares = [one for one in figures if one.share is not None]
    found: list[Drawn] = []
    for name, generators in _chunks(list(dict.fromkeys(one.generator for one in shares))):
        rows = tuple(
            tuple(
                _running_panel(shares, generator, metric, names, labels) for generator in generators
            )
            for metric in ("auroc", "natural_ece")
        )
        about = "mean over benchmarks; bars: 95 % intervals by problem"
        display = PanelsDisplay("running", "Confidence while a response is written", rows, about)
        found.append(Drawn("running", name, "AUROC and ECE while a response is written", display))
    return found


def _running_panel(
    figures: Sequence[RunningFigures],
    generator: str,
    metric: str,
    names: Sequence[str],
    labels: Labels,
) -> Panel:
    lines: list[LineSeries] = []
    for number, name in enumerate(names):
        ones = [o for o in figures if o.generator == generator and o.estimator == name]
        cells = [_bounded(one, metric) for one in ones]
        bounds = [c.interval if isinstance(c, Bounded) else None for c in cells]
        lines.append(
            LineSeries(
                label(name, labels),
                tuple(100 * (one.share or 0.0) for one in ones),
                tuple(None if not isinstance(c, Bounded) else 100 * c.value for c in cells),
                number,
                low=tuple(None if b is None else 100 * b.low for b in bounds),
                high=tuple(None if b is None else 100 * b.high for b in bounds),
                markers=True,
            )
        )
    title = "AUROC (%)" if metric == "auroc" else "ECE (%)"
    return Panel(generator, "part that is written (% of tokens)", title, tuple(lines))


def _stop_figures(
    stops: Sequence[SafeStop],
    tries: Sequence[StopAndTry],
    majorities: Sequence[Majority],
    labels: Labels,
) -> list[Drawn]:
    names = in_order((stop.estimator for stop in stops), labels)
    found: list[Drawn] = []
    for name, generators in _chunks(list(dict.fromkeys(stop.generator for stop in stops))):
        rows = [tuple(_saved_panel(stops, g, names, labels) for g in generators)]
        if tries:
            rows.append(
                tuple(_tried_panel(tries, majorities, g, names, labels) for g in generators)
            )
        about = (
            "above: stopped when the threshold is out of reach; below: the next sample instead, "
            "a point for each threshold from 0.1 to 0.9"
        )
        display = PanelsDisplay("early-stopping", "Stopping early", tuple(rows), about)
        caption = "tokens saved by stopping early, and what trying again comes to"
        found.append(Drawn("early-stopping", name, caption, display))
    return found


def _saved_panel(
    stops: Sequence[SafeStop], generator: str, names: Sequence[str], labels: Labels
) -> Panel:
    lines: list[LineSeries] = []
    for number, name in enumerate(names):
        ones = [s for s in stops if (s.generator, s.estimator) == (generator, name) and _plain(s)]
        lines.append(
            LineSeries(
                label(name, labels),
                tuple(stop.threshold for stop in ones),
                tuple(100 * stop.saved for stop in ones),
                number,
                markers=True,
                low=tuple(None if s.interval is None else 100 * s.interval.low for s in ones),
                high=tuple(None if s.interval is None else 100 * s.interval.high for s in ones),
            )
        )
    return Panel(generator, "threshold", "tokens saved (%)", tuple(lines))


def _tried_panel(
    tries: Sequence[StopAndTry],
    majorities: Sequence[Majority],
    generator: str,
    names: Sequence[str],
    labels: Labels,
) -> Panel:
    lines: list[LineSeries] = []
    for number, name in enumerate(names):
        ones = [t for t in tries if (t.generator, t.estimator) == (generator, name) and _plain(t)]
        lines.append(
            LineSeries(
                label(name, labels),
                tuple(one.spent.tokens / one.tokens_of_one for one in ones),
                tuple(100 * one.spent.accuracy for one in ones),
                number,
                markers=True,
            )
        )
    plain = [m for m in majorities if m.generator == generator and m.samples <= _MAJORITIES]
    if plain:
        one = plain[0].spent.tokens
        lines.append(
            LineSeries(
                "one sample, and the most frequent answer of three",
                tuple(m.spent.tokens / one for m in plain),
                tuple(100 * m.spent.accuracy for m in plain),
                len(names),
                dashed=True,
                markers=True,
            )
        )
    return Panel(generator, "tokens written, in single samples", "right answers (%)", tuple(lines))


def _plain(one: SafeStop | StopAndTry) -> bool:
    """Whether its threshold is one of the rising ones that are the same for all."""
    return one.threshold in THRESHOLDS


def _half_way(figures: Sequence[RunningFigures], labels: Labels) -> list[str]:
    """Which estimator tells most half-way, over the generators that have all."""
    best = _best_half_way(figures)
    if best is None:
        return []
    half, end = (
        [one.auroc for one in figures if one.estimator == best and place_of(one) == place]
        for place in (_HALF, _END)
    )
    return [
        f"Half-way through a response {label(best, labels)} tells most: AUROC {_span(half)} %, and "
        f"{_span(end)} % at its end."
    ]


def _best_half_way(
    figures: Sequence[RunningFigures], among: Sequence[str] | None = None
) -> str | None:
    half: dict[str, list[float]] = {}
    for one in figures:
        if place_of(one) == _HALF and (among is None or one.estimator in among):
            half.setdefault(one.estimator, []).append(one.auroc)
    return max(half, key=lambda name: fmean(half[name]), default=None)


def _saved(
    figures: Sequence[RunningFigures],
    stops: Sequence[SafeStop],
    tries: Sequence[StopAndTry],
    labels: Labels,
) -> list[str]:
    best = _best_half_way(figures, [stop.estimator for stop in stops])
    of = [s for s in stops if s.estimator == best and s.threshold == _SAID]
    if best is None or not of:
        return []
    text = (
        f"Stopping what cannot reach {_SAID:g} by {label(best, labels)} any more saves "
        f"{_span([s.saved for s in of])} % of the tokens and changes no decision"
    )
    again = [t for t in tries if t.estimator == best and t.threshold == _SAID]
    if again:
        text += (
            f"; trying again instead, {again[0].tries} samples at most, is right "
            f"{_span([t.than_first.change for t in again])} points more often than one sample, for "
            f"{_span([t.spent.tokens / t.tokens_of_one - 1 for t in again])} % more tokens"
        )
    return [text + "."]


def _span(values: Sequence[float]) -> str:
    """Fractions as percent, from the lowest to the highest."""
    low, high = (f"{100 * end:.1f}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
