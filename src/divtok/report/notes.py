"""What to keep in mind when reading a run's figures: each note worded once, for every place.

A new one needs its figures, computed in `evaluate`, and a function here, or in a file of notes
beside this one, that puts them into words and is named in `notes_of`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from divtok.evaluate.agreement import Agreement
from divtok.evaluate.base_rate import BaseRate
from divtok.evaluate.certified import certified
from divtok.evaluate.how_read import HowRead
from divtok.evaluate.near_theta import near_theta
from divtok.evaluate.overall import Prevalence
from divtok.evaluate.scored_group import LeftOut
from divtok.records import CountedTokens, Counts, Evaluation, PairWarning
from divtok.report.base_rate import base_rate_note
from divtok.report.count_notes import certified_note, counted_note, near_theta_note
from divtok.report.fitted_notes import fitted_here_note, rate_note
from divtok.report.note import FEW_LINES, Note
from divtok.report.prevalence_notes import noise_floor_note, prevalence_note
from divtok.report.read_on import read_on_note
from divtok.report.reading_notes import reading_note


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What notes are made of: every trace's counts with its generator, and what was left out."""

    theta: float
    theta_fitted: bool
    counted: Sequence[tuple[str, Counts]]
    dtypes: Mapping[str, str]  # of the models that read
    left_out: Sequence[LeftOut]
    evaluations: Sequence[Evaluation]
    prevalences: Sequence[Prevalence]
    # table -> what made its rows, as far as the run says
    makers: Mapping[str, Sequence[Mapping[str, str]]]
    happened: Sequence[str]
    agreement: Sequence[Agreement] | None = None  # where verdicts of another tool are compared
    warnings: Sequence[PairWarning] = ()
    tokens: CountedTokens = "reasoning"
    how_read: Sequence[HowRead] = ()
    base_rates: Sequence[BaseRate] = ()
    fits: Sequence[Mapping[str, Any]] = ()  # that the run was scored with


def notes_of(seen: Seen) -> list[Note]:
    """In the order of the report's page."""
    return [
        pair_note(seen.warnings),
        left_out_note(seen.left_out),
        *([] if seen.agreement is None else [agreement_note(seen.agreement)]),
        theta_note(seen.theta, fitted=seen.theta_fitted),
        rate_note(seen.evaluations),
        fitted_here_note(seen.fits),
        counted_note(seen.tokens),
        certified_note(certified(seen.counted, theta=seen.theta)),
        near_theta_note(near_theta(seen.counted, theta=seen.theta, dtypes=seen.dtypes)),
        noise_floor_note(seen.evaluations),
        reading_note(seen.how_read, seen.makers),
        mixed_note(seen.makers),
        happened_note(seen.happened),
        unanswered_note(seen.evaluations),
        read_on_note(seen.evaluations),
        prevalence_note(seen.prevalences),
        base_rate_note(seen.base_rates),
    ]


def unanswered_note(evaluations: Sequence[Evaluation]) -> Note:
    """Groups without an accuracy, because most of their responses hold no answer."""
    found = {(e.generator, e.benchmark): e for e in evaluations if e.accuracy is None}
    lines = [
        f"{generator} on {benchmark}: no answer was found in "
        f"{e.excluded_by.get('unanswered', 0):,} of {e.n:,} responses, so it has no accuracy."
        for (generator, benchmark), e in found.items()
    ]
    if lines:
        lines.append(
            "'divtok ls protocols' says how answers can be found: import the responses into "
            "another run with --protocol NAME, or generate with protocol=NAME."
        )
    return Note(
        key="mostly_unanswered",
        heading="No answers",
        title="Most responses hold no answer",
        about="An answer that is not found says nothing about whether it is right.",
        lines=tuple(lines),
        value=lambda evaluation: evaluation.accuracy is None,
    )


def pair_note(warnings: Sequence[PairWarning]) -> Note:
    """Pairs of models whose divergences say nothing of the responses."""
    return Note(
        key="pair_warnings",
        heading="Warning",
        title="Pairs that may mean nothing",
        about="Where two models are the same, know nothing or never differ, their divergences are "
        "numbers without a meaning, and so is every figure that is made of them.",
        lines=tuple(warning.text for warning in warnings),
        value=lambda _: [asdict(warning) for warning in warnings],
    )


def left_out_note(results: Sequence[LeftOut]) -> Note:
    """Rows that are not counted, a line for each generator and benchmark."""

    def value(evaluation: Evaluation) -> dict[str, int] | None:
        group = (evaluation.benchmark, evaluation.generator)
        for found in results:
            if (found.benchmark, found.generator) == group:
                counts = {"failed": found.failed, "gold_missing": found.gold_missing}
                missing = found.verdict_missing
                return counts | ({"verdict_missing": missing} if missing else {})
        return None

    return Note(
        key="left_out",
        heading="Left out",
        title="Rows that are not counted",
        about="A problem without a response, or a response without a gold answer or verdict, is "
        "not a wrong answer: it is not counted in any figure, accuracy included.",
        lines=tuple(
            f"{found.generator} on {found.benchmark}: {_left_out(found)}, not counted in any "
            "figure."
            for found in results
        ),
        value=value,
        short=None if len(results) <= FEW_LINES else (_left_out_in_all(results),),
    )


def agreement_note(groups: Sequence[Agreement]) -> Note:
    """How our verdicts and those of the tool that the responses come from compare."""

    def value(evaluation: Evaluation) -> dict[str, int] | None:
        for found in groups:
            if (found.benchmark, found.generator) == (evaluation.benchmark, evaluation.generator):
                counts = asdict(found)
                return {name: n for name, n in counts.items() if isinstance(n, int)}
        return None

    return Note(
        key="verdicts",
        heading="Verdicts",
        title="Verdicts of the other tool",
        about="Every figure counts divtok's own verdicts (ours). The tool that the responses come "
        "from had judged them, too (theirs). Where the two disagree is in `tables/disagreements`.",
        lines=tuple(found.sentence() for found in groups),
        value=value,
    )


def theta_note(theta: float, *, fitted: bool) -> Note:
    """Where no theta was fitted for the pair: what the figures still say, and how to fit one."""
    line = (
        f"No theta was fitted for this pair. Tokens are counted at {theta:g} bits, so the count "
        "only ranks responses, and there is no confidence that needs theta. Fit one with "
        "'divtok fit --run RUN' on a run whose problems no table uses, then 'divtok score RUN "
        "--theta T'."
    )
    return Note(
        key="theta_fitted",
        heading="Theta",
        title="No theta was fitted",
        about="Theta says above which divergence a token counts; each pair of models has its own.",
        lines=() if fitted else (line,),
        value=lambda _: fitted,
    )


def happened_note(happened: Sequence[str]) -> Note:
    """What happened while rows were made, such as batches that memory made smaller."""
    return Note(
        key="happened",
        heading="Note",
        title="While it was made",
        about="What happened while the rows of this run were made.",
        lines=tuple(happened),
        value=lambda _: list(happened),
    )


def mixed_note(makers: Mapping[str, Sequence[Mapping[str, str]]]) -> Note:
    """Tables whose rows the same models made on several devices or in several dtypes."""
    places: dict[tuple[str, str], list[str]] = {}
    for table, made in makers.items():
        for maker in made:
            if "device" in maker:
                place = f"{maker['device']} in {maker['dtype']}"
                places.setdefault((table, maker["models"]), []).append(place)
    found = {key: list(dict.fromkeys(each)) for key, each in places.items()}
    mixed = {key: each for key, each in found.items() if len(each) > 1}
    return Note(
        key="mixed",
        heading="Mixed",
        title="Parts that were made otherwise",
        about="Some rows were made on another device or in another dtype than others of the same "
        "models. Their numbers differ a little more than rounding within one device would.",
        lines=tuple(
            f"rows of {table} by {models} were made on {' and on '.join(each)}."
            for (table, models), each in mixed.items()
        ),
        value=lambda _: [
            {"table": table, "models": models, "made_on": each}
            for (table, models), each in mixed.items()
        ],
    )


def _left_out(found: LeftOut) -> str:
    counts = (
        (found.failed, "without a response"),
        (found.gold_missing, "without a gold answer"),
        (found.verdict_missing, "without a verdict of the other tool"),
    )
    return " and ".join(f"{count:,} {what}" for count, what in counts if count)


def _left_out_in_all(results: Sequence[LeftOut]) -> str:
    parts = ("failed", "gold_missing", "verdict_missing")
    sums = {part: sum(getattr(found, part) for found in results) for part in parts}
    whole = LeftOut("", "", **sums)
    return (
        f"{_left_out(whole)} in {len(results)} groups, not counted in any figure; the report's "
        "page lists them."
    )
