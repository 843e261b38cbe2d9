"""What a row of each core table looks like. Columns carry the names of the record's fields."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from divtok.divergences.divergence import DIVERGENCES
from divtok.records import (
    PER_TOKEN_FIELDS,
    Call,
    CallPurpose,
    Confidence,
    Counts,
    Evaluation,
    FinishReason,
    FloatArray,
    Grade,
    Problem,
    StepLabels,
    TheirVerdict,
    Trace,
    TraceStatus,
    Trajectory,
)
from divtok.store.columns import (
    DIVERGENCE,
    ArrowColumn,
    Column,
    choice,
    flag,
    floats,
    floats_in,
    fraction,
    ids,
    interval,
    mapping,
    number,
    reason,
    sampling,
    text,
    texts,
    verdict,
    whole,
)
from divtok.store.layout import Layout


def _decode_counted(array: ArrowColumn) -> list[str]:
    """Before there was a choice the reasoning tokens were counted."""
    return ["reasoning" if value is None else value for value in array.to_pylist()]


def _per_token(name: str, *, nullable: bool = False) -> Column:
    return floats(name, unit="bits" if name.endswith("_bits") else "nats", nullable=nullable)


PROBLEMS = Layout(
    "problems",
    Problem,
    ("benchmark", "id"),
    (text("id"), text("benchmark"), text("question"), text("answer", nullable=True)),
)

TRAJECTORIES = Layout(
    "trajectories",
    Trajectory,
    ("key",),
    (
        text("key"),
        text("problem_id"),
        text("benchmark"),
        whole("sample"),
        text("generator"),
        ids("prompt_ids"),
        ids("token_ids"),
        text("text"),
        choice("finish_reason", get_args(FinishReason)),
        text("protocol"),
        sampling("sampling"),
        flag("retokenized"),
        *reason(),
    ),
)

CALLS = Layout(
    "calls",
    Call,
    ("key", "purpose"),
    (
        text("key"),
        choice("purpose", get_args(CallPurpose)),
        text("server"),
        text("model"),
        whole("attempts"),
        texts("setbacks"),
        whole("prompt_tokens", nullable=True),
        whole("completion_tokens", nullable=True),
        number("cost", nullable=True),
        number("seconds", unit="seconds"),
        *reason(),
    ),
)

GRADES = Layout(
    "grades",
    Grade,
    ("key",),
    (
        text("key"),
        text("extracted", nullable=True),
        verdict("verdict"),
        *reason(),
        whole("answer_start", nullable=True, unit="characters"),
        whole("answer_stop", nullable=True, unit="characters"),
        text("fallback", nullable=True),
    ),
)

VERDICTS = Layout(
    "verdicts",
    TheirVerdict,
    ("key", "scorer"),
    (
        text("key"),
        text("scorer"),
        verdict("verdict"),
        text("extracted", nullable=True),
        *reason(),
    ),
)

STEP_LABELS = Layout(
    "step_labels",
    StepLabels,
    ("key",),
    (text("key"), whole("first_wrong"), ids("starts"), ids("stops")),
)

_TRACE_COLUMNS = (
    text("key"),
    text("p"),
    text("q"),
    *(_per_token(name) for name in PER_TOKEN_FIELDS),
    whole("answer_start", nullable=True),
    whole("answer_stop", nullable=True),
    whole("turn_end"),
    number("dropped_mass_p", unit="probability"),
    number("dropped_mass_q", unit="probability"),
    flag("exact"),
    flag("retokenized"),
    choice("status", get_args(TraceStatus)),
    *reason(),
    _per_token("jsd_low_bits", nullable=True),
    _per_token("jsd_high_bits", nullable=True),
)


def _others() -> list[Column]:
    """One optional column for each divergence beside those that every trace has."""
    others = [d for d in DIVERGENCES if d.column not in PER_TOKEN_FIELDS]

    def join(*columns: FloatArray | None) -> dict[str, FloatArray]:
        found = zip(others, columns, strict=True)
        return {d.column: values for d, values in found if values is not None}

    columns = [floats_in("others", d.column, unit=d.unit).marked(DIVERGENCE) for d in others]
    return [replace(column, join=join) for column in columns]


def traces() -> Layout[Trace]:
    """The layout of traces, with the divergences that are registered now."""
    return Layout("traces", Trace, ("key", "p", "q"), (*_TRACE_COLUMNS, *_others()))


CONFIDENCES = Layout(
    "confidences",
    Confidence,
    ("key", "estimator"),
    (
        text("key"),
        text("estimator"),
        mapping("params"),
        number("value", nullable=True),
        *reason(),
        number("low", nullable=True),
        number("high", nullable=True),
        fraction("prior"),
    ),
)

COUNTS = Layout(
    "counts",
    Counts,
    ("key",),
    (
        text("key"),
        text("p"),
        text("q"),
        number("theta"),
        whole("count", unit="tokens"),
        *(whole(name, nullable=True, unit="tokens") for name in ("low", "high")),
        *(whole(name, unit="tokens") for name in ("length", "reasoning")),
        number("band_bits", unit="bits"),
        *(whole(name, unit="tokens") for name in ("near_above", "near_below")),
        replace(text("counted", nullable=True), decode=_decode_counted),
    ),
)

# Sweeps evaluate one estimator under many parameters, so these are part of an evaluation's key.
EVALUATIONS = Layout(
    "evaluations",
    Evaluation,
    ("benchmark", "generator", "estimator", "params"),
    (
        text("benchmark"),
        text("generator"),
        text("estimator"),
        mapping("params"),
        whole("n"),
        fraction("accuracy"),
        whole("n_scored"),
        whole("n_balanced"),
        *(fraction(name) for name in ("ece", "ece_sd", "auroc", "auroc_sd")),
        *(fraction(name) for name in ("natural_ece", "natural_auroc", "brier", "aurc")),
        fraction("natural_ece_debiased"),
        fraction("natural_ece_floor"),
        interval("natural_ece_interval"),
        interval("natural_auroc_interval"),
        interval("brier_interval"),
        fraction("mean_confidence"),
        fraction("share_right"),
        whole("excluded"),
        mapping("excluded_by"),
        whole("clipped"),
        *reason(),
        whole("beyond", nullable=True),
        whole("trained_length", nullable=True, unit="tokens"),
        whole("fallbacks", nullable=True, unit="responses"),
        interval("aurc_interval"),
        fraction("coverage_at_1"),
        interval("coverage_at_1_interval"),
        fraction("coverage_at_5"),
        interval("coverage_at_5_interval"),
        fraction("coverage_at_10"),
        interval("coverage_at_10_interval"),
    ),
)
