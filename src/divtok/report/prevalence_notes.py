"""Notes about natural prevalence: how often it is right, what is said, and what chance explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from divtok.evaluate.overall import Prevalence
from divtok.records import Evaluation
from divtok.report.note import FEW_LINES, Note
from divtok.report.stated_for import listed, mapped_at, stated_for
from divtok.score.registry import ESTIMATORS


def prevalence_note(found: Sequence[Prevalence]) -> Note:
    """How often each generator is right, and what the estimators say of it on average."""

    def value(evaluation: Evaluation) -> float | None:
        says, right = evaluation.mean_confidence, evaluation.share_right
        return None if says is None or right is None else says - right

    return Note(
        key="overconfidence",
        heading="Natural prevalence",
        title="How often it is right, and what is said",
        about="Balanced draws make every benchmark half right. As they are, the responses are "
        "right more or less often than that, and a confidence that means what it says is as high "
        "on average. Where an estimator's numbers, or theta, were set for another share of right "
        "answers than there is, the line says so.",
        lines=tuple(_prevalence(one) for one in found if one.accuracy is not None and one.says),
        value=value,
    )


def _prevalence(found: Prevalence) -> str:
    assert found.accuracy is not None
    assert found.interval is not None
    first = [name for name in ("dtc_lin", "dtc_prod") if name in found.says]
    names = [*first, *(name for name in found.says if name not in first)]
    says = ", ".join(f"{name} {_whole(found.says[name])}" for name in names[1:])
    return (
        f"{found.generator} is right {_whole(found.accuracy)} of the time ({found.n:,} responses, "
        f"95 % interval {100 * found.interval.low:.0f} to {_whole(found.interval.high)}); "
        f"{names[0]} says {_whole(found.says[names[0]])} on average{', ' if says else ''}{says}."
        f"{_set_for(found)}"
    )


def _set_for(found: Prevalence) -> str:
    """What the numbers were set for, where that is not how often scored responses are right."""
    right, ends = found.share_right, found.share_interval
    if right is None or ends is None:
        return ""
    rates: dict[float, list[str]] = {}
    for name in found.says:
        rate = found.priors.get(
            name, ESTIMATORS.get(name).base_rate if name in ESTIMATORS else None
        )
        if rate is not None and not ends.low <= rate <= ends.high:
            rates.setdefault(rate, []).append(name)
    text = ""
    for rate, names in rates.items():
        own = [name for name in names if name not in found.priors]
        mapped = [name for name in names if name in found.mapped]
        stated = [name for name in names if name in found.priors and name not in mapped]
        if own:
            text += (
                f" {listed(own)}, and theta, were set for {_whole(rate)} right answers; "
                "score.prior states confidences for another share."
            )
        if stated:
            text += f" {stated_for(stated, _whole(rate))} (score.prior)."
        if mapped:
            text += f" {mapped_at(mapped, _whole(rate))}."
    return text


def _whole(share: float) -> str:
    return f"{100 * share:.0f} %"


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
        short=None if len(small) <= FEW_LINES else (_noise_in_all(small, evaluations),),
    )


def _noise_in_all(
    small: Mapping[tuple[str, str], Sequence[str]], evaluations: Sequence[Evaluation]
) -> str:
    known = sum(e.natural_ece_interval is not None for e in evaluations)
    return (
        f"{sum(map(len, small.values()))} of {known} natural ECEs of single groups cannot be told "
        "from those of a perfectly calibrated estimator: chance alone would show as much. The "
        "report's page lists them."
    )


def _within_noise(evaluation: Evaluation) -> bool | None:
    true = evaluation.natural_ece_interval
    return None if true is None else true.low == 0
