"""What a row of each core table looks like. Columns carry the names of the record's fields."""

from __future__ import annotations

from typing import get_args

from divtok.records import (
    PER_TOKEN_FIELDS,
    Call,
    CallPurpose,
    Chain,
    Confidence,
    Counts,
    Evaluation,
    FinishReason,
    Grade,
    Problem,
    Reading,
    ReadingKind,
    Relevance,
    Reply,
    StepRewards,
    Trace,
    TraceStatus,
    Trajectory,
)
from divtok.store.columns import (
    Column,
    choice,
    flag,
    floats,
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
from divtok.store.layout import Key as Key
from divtok.store.layout import Layout as Layout


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
    ),
)

TRACES = Layout(
    "traces",
    Trace,
    ("key", "p", "q"),
    (
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
    ),
)

REPLIES = Layout(
    "replies",
    Reply,
    ("key",),
    (
        text("key"),
        text("model"),
        ids("token_ids"),
        text("text"),
        choice("finish_reason", get_args(FinishReason)),
        *reason(),
    ),
)

CHAINS = Layout(
    "chains",
    Chain,
    ("key", "model"),
    (
        text("key"),
        text("model"),
        ids("tokens"),
        ids("similar"),
        *reason(),
    ),
)

READINGS = Layout(
    "readings",
    Reading,
    ("key", "model", "kind"),
    (
        text("key"),
        text("model"),
        choice("kind", get_args(ReadingKind)),
        floats("logprob", unit="nats"),
        *reason(),
    ),
)

REWARDS = Layout(
    "rewards",
    StepRewards,
    ("key", "model"),
    (
        text("key"),
        text("model"),
        floats("rewards", unit="fraction"),
        *reason(),
    ),
)

RELEVANCE = Layout(
    "relevance",
    Relevance,
    ("key", "source"),
    (
        text("key"),
        text("source"),
        floats("weights", unit="weight"),
        *reason(),
    ),
)

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
        *(whole(name, nullable=True, unit="tokens") for name in ("count", "low", "high")),
        whole("length", unit="tokens"),
        whole("reasoning", unit="tokens"),
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
        fraction("accuracy", nullable=False),
        whole("n_scored"),
        whole("n_balanced"),
        *(fraction(name) for name in ("ece", "ece_sd", "auroc", "auroc_sd")),
        *(fraction(name) for name in ("natural_ece", "natural_auroc", "brier", "aurc")),
        interval("natural_ece_interval"),
        interval("natural_auroc_interval"),
        whole("excluded"),
        mapping("excluded_by"),
        whole("clipped"),
        *reason(),
    ),
)
