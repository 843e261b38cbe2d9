"""What to keep in mind when reading a run's figures: each note worded once, for every place.

A `Note` carries its text for the terminal and for the report's page, and its value in the JSON of
an evaluation. A new one needs its figures, computed in `evaluate`, and a function here that puts
them into words and is named in `notes_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from divtok.evaluate.agreement import Agreement
from divtok.evaluate.certified import Certified, certified
from divtok.evaluate.near_theta import NearTheta, near_theta
from divtok.evaluate.scored_group import LeftOut
from divtok.records import Counts, Evaluation, PairWarning
from divtok.report.text import markdown


@dataclass(frozen=True, slots=True)
class Note:
    """`lines` hold names as they are: they are not yet safe to show. Without lines, nothing is
    said in the terminal or on the page; the JSON has the key all the same.
    """

    key: str  # in the JSON of an evaluation
    heading: str  # in front of each line in the terminal
    title: str  # of the section on the report's page
    about: str  # the paragraph before the lines of that section
    lines: tuple[str, ...]
    value: Callable[[Evaluation], Any]  # what `key` holds, ready for JSON

    def markdown(self) -> str:
        """The section of the report's page."""
        lines = "\n".join(f"- {markdown(line)}" for line in self.lines)
        return f"## {self.title}\n\n{self.about}\n\n{lines}"


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What notes are made of: every trace's counts with its generator, and what was left out."""

    theta: float
    theta_fitted: bool
    counted: Sequence[tuple[str, Counts]]
    dtypes: Mapping[str, str]  # of the models that read
    left_out: Sequence[LeftOut]
    evaluations: Sequence[Evaluation]
    # table -> what made its rows, as far as the run says
    makers: Mapping[str, Sequence[Mapping[str, str]]]
    happened: Sequence[str]
    agreement: Sequence[Agreement] | None = None  # where verdicts of another tool are compared
    warnings: Sequence[PairWarning] = ()


def notes_of(seen: Seen) -> list[Note]:
    """In the order of the report's page."""
    return [
        pair_note(seen.warnings),
        left_out_note(seen.left_out),
        *([] if seen.agreement is None else [agreement_note(seen.agreement)]),
        theta_note(seen.theta, fitted=seen.theta_fitted),
        certified_note(certified(seen.counted, theta=seen.theta)),
        near_theta_note(near_theta(seen.counted, theta=seen.theta, dtypes=seen.dtypes)),
        noise_floor_note(seen.evaluations),
        mixed_note(seen.makers),
        happened_note(seen.happened),
    ]


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


def certified_note(results: Sequence[Certified]) -> Note:
    """How much of a count is certain where servers returned only their most likely tokens."""
    return Note(
        key="certified",
        heading="Certified",
        title="How much is certain",
        about="These responses were read through servers that return only their most likely "
        "tokens. That bounds each divergence from both sides: a token is certainly divergent, "
        "certainly not, or open. The figures take the middle of the bounds; the columns `low` and "
        "`high` of the table of confidences hold the bounds of each confidence.",
        lines=tuple(
            f"{found.generator} read by {found.p} with {found.q}: {certified_sentence(found)}"
            for found in results
        ),
        value=lambda evaluation: _of_generator(results, evaluation),
    )


def near_theta_note(results: Sequence[NearTheta]) -> Note:
    """How many tokens lie near theta, and how far a count could move because of them."""
    return Note(
        key="near_theta",
        heading="Near theta",
        title="Tokens near theta",
        about="A token is divergent when its divergence is above theta. A model's numbers depend a "
        "little on how its tokens were batched, so a token very near theta may count in one run "
        "and not in the next.",
        lines=tuple(
            f"{found.generator}{_readers(found)}: {near_theta_sentence(found)}" for found in results
        ),
        value=lambda evaluation: _of_generator(results, evaluation),
    )


def noise_floor_note(evaluations: Sequence[Evaluation]) -> Note:
    """The ECEs at natural prevalence that chance alone would explain, a line for each group."""
    small: dict[tuple[str, str], list[str]] = {}
    for e in evaluations:
        true = e.natural_ece_interval
        if e.natural_ece is None or e.natural_ece_floor is None or true is None or true.low > 0:
            continue
        small.setdefault((e.generator, e.benchmark), []).append(
            f"{e.estimator} {100 * e.natural_ece:.1f} (noise floor "
            f"{100 * e.natural_ece_floor:.1f}, the true one at most {100 * true.high:.1f})"
        )
    return Note(
        key="ece_within_noise",
        heading="Noise floor",
        title="Calibration errors that chance explains",
        about="Bins with few responses are off by chance, so even a perfectly calibrated estimator "
        "shows an ECE above 0: its noise floor. At natural prevalence these cannot be told from "
        "perfectly calibrated ones.",
        lines=tuple(
            f"{generator} on {benchmark}, natural ECE in %: {', '.join(found)}."
            for (generator, benchmark), found in small.items()
        ),
        value=_within_noise,
    )


def _within_noise(evaluation: Evaluation) -> bool | None:
    true = evaluation.natural_ece_interval
    return None if true is None else true.low == 0


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


def certified_sentence(found: Certified) -> str:
    """One sentence for one generator and pair, without their names."""
    if found.share is None:
        return "there are no reasoning tokens."
    certain = f"{100 * found.share:.2f} %"
    if found.open and certain == "100.00 %":
        certain = "over 99.99 %"  # an open token is never rounded away
    of_all = f"{certain} of {found.tokens:,} reasoning tokens are certain at theta {found.theta:g}"
    if not found.open:
        return f"{of_all}, {found.divergent:,} of them divergent: every count is certain."
    is_open = "1 is open" if found.open == 1 else f"{found.open:,} are open"
    return (
        f"{of_all}, {found.divergent:,} of them divergent; {is_open}. All counts together lie "
        f"between {found.divergent:,} and {found.divergent + found.open:,}. "
        f"{found.trajectories_certain:,} of {found.trajectories:,} trajectories have a certain "
        f"count; the count of one is open by {found.largest_open:,} at most."
    )


def near_theta_sentence(found: NearTheta) -> str:
    """One sentence for one generator and pair, without their names."""
    tokens = f"{found.tokens:,} reasoning tokens"
    where = f"within {found.band_bits:g} bits of theta {found.theta:g}"
    if found.share is None:
        return "there are no reasoning tokens."
    if not found.near:
        assumed = "; half precision assumed" if found.precision == "unknown" else ""
        return f"none of {tokens} lies {where}{assumed}: no count depends on rounding."
    lie = "lies" if found.near == 1 else "lie"
    them = "it counts" if found.near == 1 else "they count"
    return (
        f"{found.near:,} of {tokens} ({_percent(found.share)}) {lie} {where}, in "
        f"{found.trajectories_near:,} of {found.trajectories:,} trajectories: whether {them} as "
        f"divergent may depend on {_ROUNDING[found.precision]}. The count of a trajectory could "
        f"change by at most {found.largest_change:,}; all counts together, now {found.count:,}, "
        f"could come out between {found.count_low:,} and {found.count_high:,}."
    )


_ROUNDING = {
    "float32": "rounding (float32)",
    "half": "rounding (half precision)",
    "unknown": "rounding (half precision is assumed: the run does not say in which dtype its "
    "models ran)",
}


def _of_generator(
    results: Sequence[Certified] | Sequence[NearTheta], evaluation: Evaluation
) -> list[dict[str, Any]]:
    """One object for each pair that read the generator's trajectories."""
    return [
        {**asdict(found), "share": found.share}
        for found in results
        if found.generator == evaluation.generator
    ]


def _left_out(found: LeftOut) -> str:
    counts = (
        (found.failed, "without a response"),
        (found.gold_missing, "without a gold answer"),
        (found.verdict_missing, "without a verdict of the other tool"),
    )
    return " and ".join(f"{count:,} {what}" for count, what in counts if count)


def _readers(found: NearTheta) -> str:
    if found.p == found.generator:
        return f" with {found.q}"
    return f" read by {found.p} with {found.q}"


def _percent(share: float) -> str:
    """Two decimals, unless that would show a token that is there as none."""
    percent = 100 * share
    return f"{percent:.2f} %" if percent >= 0.005 else "under 0.01 %"
