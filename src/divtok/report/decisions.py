"""What can be promised of accepted answers: sentences, a table of all estimators, and a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from divtok.decide.offer import Answers, Offer, answers_of, offer_of
from divtok.decide.threshold import risk_points
from divtok.evaluate.scored_group import ScoredGroup, by_generator
from divtok.report.note import FEW_LINES
from divtok.report.panels import LineSeries, Panel, PanelsDisplay
from divtok.report.part import Drawn, Part
from divtok.report.tables import ReportColumn, ReportRow, ReportTable, in_order, label, supervised

RISKS = (0.01, 0.05, 0.10)
DELTA = 0.1
_SHOWN_RISK = 0.05  # in the picture and in the sentences


def floor_line(offer: Offer) -> str:
    """What nobody can do better than."""
    risk = offer.promise.risk
    text = f"{_percent(offer.base_risk)} of {offer.responses:,} responses are wrong"
    if offer.undecided:
        text += f" ({offer.undecided:,} that were not decided are left out)"
    if offer.floor == 0:
        return f"{text}: within {_percent(risk)} as they are."
    return (
        f"{text}: to have at most {_percent(risk)} wrong among those that are accepted, any rule "
        f"must withhold {_percent(offer.floor)} or more."
    )


def offer_lines(offer: Offer) -> list[str]:
    """What is promised, or what can be."""
    promise, name = offer.promise, offer.estimator
    sure = f"with chance {_percent(1 - promise.delta)}"
    if promise.threshold is None or offer.coverage is None or offer.accepted_risk is None:
        return [
            f"{name}: {_percent(promise.risk)} cannot be promised: {promise.reason}.",
            f"The best that can: from {promise.best_threshold:.4g} on, at most "
            f"{_percent(promise.best_risk)} are wrong, {sure}. That accepts "
            f"{_percent(promise.accepted / promise.tested)} ({_how_tested(offer)}).",
        ]
    return [
        f"{name}: accept from {promise.threshold:.4g} on, and at most {_percent(promise.risk)} of "
        f"the accepted answers are wrong, {sure}.",
        f"That accepts {_percent(offer.coverage)} of the responses; here "
        f"{_percent(offer.accepted_risk)} of those are wrong ({_how_tested(offer)}).",
    ]


def decisions_part(
    groups: Sequence[ScoredGroup], labels: Mapping[str, str] | None = None
) -> Part | None:
    """Of every estimator how much can be accepted; None where no response is a confidence's."""
    found = {
        generator: {
            name: answers_of(of, name)
            for name in in_order((c.estimator for c in of[0].columns if not c.ranking_only), labels)
        }
        for generator, of in by_generator(groups).items()
    }
    offers = {
        (generator, risk): {name: _offer(a, name, risk) for name, a in answers.items()}
        for generator, answers in found.items()
        for risk in RISKS
    }
    table = _table(offers, labels)
    if table is None:
        return None
    best = {generator: _best(offers[generator, _SHOWN_RISK]) for generator in found}
    return Part(
        about="`tables/decisions.*`: how many answers can be accepted with a promise on how many "
        "of them are wrong; `divtok decide` makes the policy.",
        tables={"decisions": table},
        figures=tuple(
            _drawn(generator, offer, found[generator][offer.estimator], labels)
            for generator, offer in best.items()
            if offer is not None
        ),
        short=_short(best, labels),
    )


def _offer(answers: Answers, name: str, risk: float) -> Offer | None:
    scored = (answers.confidence == answers.confidence).any()  # NaN is not equal to itself
    return offer_of(answers, name, risk=risk, delta=DELTA) if scored else None


def _table(
    offers: Mapping[tuple[str, float], Mapping[str, Offer | None]],
    labels: Mapping[str, str] | None,
) -> ReportTable | None:
    names = in_order((name for of in offers.values() for name in of), labels)
    columns = (
        ReportColumn("generator", "Generator"),
        ReportColumn("risk", "Risk", "percent"),
        ReportColumn("most", "At most", "percent"),
        *(
            ReportColumn(e, label(e, labels), "percent", None if e in supervised() else "higher")
            for e in names
        ),
    )
    rows: list[ReportRow] = []
    for (generator, risk), of in offers.items():
        one = next((offer for offer in of.values() if offer is not None), None)
        if one is not None:
            found = {name: offer.coverage for name, offer in of.items() if offer is not None}
            cells = (found.get(name) for name in names)
            rows.append(ReportRow((generator, risk, 1 - one.floor, *cells)))
    if not rows:
        return None
    caption = (
        "Share of responses, over all benchmarks, that can be accepted such that, with chance "
        f"{_percent(1 - DELTA)}, at most the risk of them are wrong; without an answer "
        "counts as wrong. At most: what a rule that knew the grades would accept. A dash: it "
        "cannot be promised with so many problems. The promise is for an estimator that was "
        "chosen beforehand: choose by this table, then promise on other problems."
    )
    return ReportTable("Answers that can be accepted (%)", columns, tuple(rows), caption)


def _best(of: Mapping[str, Offer | None]) -> Offer | None:
    """The offer that accepts most; without any, the one with the lowest risk to promise."""
    there = [offer for offer in of.values() if offer is not None]
    return max(there, key=lambda o: (o.coverage or 0.0, -o.promise.best_risk), default=None)


def _drawn(
    generator: str, offer: Offer, answers: Answers, labels: Mapping[str, str] | None
) -> Drawn:
    points = risk_points(
        answers.confidence, answers.correct, answers.problem, risk=offer.promise.risk, delta=DELTA
    )
    x = tuple(100 * point.coverage for point in points)
    risk, name = offer.promise.risk, label(offer.estimator, labels)
    lines = (
        LineSeries("wrong among the accepted, measured", x, _percents(p.risk for p in points), 0),
        LineSeries(
            f"highest that is not unlikely ({_percent(1 - DELTA)})",
            x, _percents(p.highest for p in points), 1, dashed=True,
        ),
        LineSeries(f"asked for: {_percent(risk)}", (x[0], x[-1]), (100 * risk,) * 2, 4),
    )  # fmt: skip
    panel = Panel(
        f"{name} accepts",
        "responses that are accepted (%), the most confident first",
        "wrong (%)",
        lines,
        mark=None if offer.coverage is None else 100 * offer.coverage,
        mark_label=f"accepted with the promise ({_percent(risk)} wrong at most)",
    )
    about = (
        f"{offer.responses:,} responses to {offer.problems:,} problems, "
        f"{_percent(offer.base_risk)} wrong; each point by itself, the search allows for all"
    )
    display = PanelsDisplay("decisions", f"What can be accepted of {generator}", ((panel,),), about)
    caption = f"wrong answers among those that are accepted, {generator} by {name}"
    return Drawn("decisions", generator, caption, display)


def _percents(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(100 * value for value in values)


def _short(best: Mapping[str, Offer | None], labels: Mapping[str, str] | None) -> tuple[str, ...]:
    lines = [
        f"Of {generator}'s answers {label(o.estimator, labels)} accepts most, "
        f"{_percent(o.coverage)}: had it been chosen beforehand, at most "
        f"{_percent(o.promise.risk)} of them are wrong, with chance {_percent(1 - DELTA)}."
        if o.coverage is not None
        else f"Of {generator}'s answers none can be accepted with a promise of at most "
        f"{_percent(o.promise.risk)} wrong."
        for generator, o in best.items()
        if o is not None
    ]
    return tuple(lines) if len(lines) <= FEW_LINES else ()


def _how_tested(offer: Offer) -> str:
    promise = offer.promise
    if promise.test == "bets":
        return f"tested on {promise.tested:,} responses to {promise.problems:,} problems"
    return f"tested on one response to each of {promise.problems:,} problems"


def _percent(share: float) -> str:
    """At most one decimal."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"
