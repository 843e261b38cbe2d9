"""Notes about counts: which tokens can count, those near theta, and those known within bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from divtok.evaluate.certified import Certified
from divtok.evaluate.near_theta import NearTheta
from divtok.records import CountedTokens, Evaluation
from divtok.report.note import Note
from divtok.score.facts import COUNTED_WORDS


def counted_note(tokens: CountedTokens) -> Note:
    """Which tokens can count as divergent, where they are not the usual ones."""
    line = (
        f"Divergent tokens are counted over {COUNTED_WORDS[tokens]} (score.tokens={tokens}), not "
        f"over {COUNTED_WORDS['reasoning']} alone."
    )
    return Note(
        key="tokens_counted",
        heading="Counted",
        title="Which tokens count",
        about="By default the answer itself and the end of the turn are left out, whatever their "
        "divergence.",
        lines=() if tokens == "reasoning" else (line,),
        value=lambda _: tokens,
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
        short=None if len(results) <= 1 else tuple(map(near_theta_sentence, _in_all(results))),
    )


def _in_all(results: Sequence[NearTheta]) -> list[NearTheta]:
    """Those of one precision added up."""
    alike: dict[str, list[NearTheta]] = {}
    for found in results:
        alike.setdefault(found.precision, []).append(found)
    sums = ("tokens", "near", "trajectories", "trajectories_near", "count", "count_low")
    return [
        replace(
            of[0],
            **{name: sum(getattr(found, name) for found in of) for name in (*sums, "count_high")},
            **{
                name: max(getattr(found, name) for found in of)
                for name in ("largest_change", "largest_range")
            },
        )
        for of in alike.values()
    ]


def certified_sentence(found: Certified) -> str:
    """One sentence for one generator and pair, without their names."""
    if found.share is None:
        return f"there are no {_those(found)}."
    certain = f"{100 * found.share:.2f} %"
    if found.open and certain == "100.00 %":
        certain = "over 99.99 %"  # an open token is never rounded away
    of_all = f"{certain} of {found.tokens:,} {_those(found)} are certain at theta {found.theta:g}"
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
    tokens = f"{found.tokens:,} {_those(found)}"
    where = f"within {found.band_bits:g} bits of theta {found.theta:g}"
    if found.share is None:
        return f"there are no {_those(found)}."
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


def _those(found: Certified | NearTheta) -> str:
    return "reasoning tokens" if found.counted == "reasoning" else "tokens that can count"


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


def _readers(found: NearTheta) -> str:
    if found.p == found.generator:
        return f" with {found.q}"
    return f" read by {found.p} with {found.q}"


def _percent(share: float) -> str:
    """Two decimals, unless that would show a token that is there as none."""
    percent = 100 * share
    return f"{percent:.2f} %" if percent >= 0.005 else "under 0.01 %"
