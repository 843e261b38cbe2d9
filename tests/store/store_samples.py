"""Hypothesis strategies and small fixed records for the tests of the store."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from divtok import records as r
from divtok.divergences.divergence import DIVERGENCES
from divtok.evidence.kinds.chain import CHAINS
from divtok.evidence.kinds.relevance import RELEVANCE
from divtok.evidence.kinds.rewards import REWARDS
from divtok.evidence.kinds.statement import REPLIES
from divtok.evidence.readings import READINGS
from divtok.store import schema
from divtok.store.layout import Layout

TRACES = schema.traces()

# The columns of the divergences that a trace need not have.
FURTHER = sorted({d.column for d in DIVERGENCES} - {*r.PER_TOKEN_FIELDS})

# Every code point that UTF-8 can hold, NUL and line ends among them.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
maybe_text = st.none() | texts
reasons = st.none() | st.builds(r.Reason, texts, texts)
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
numbers = st.floats(allow_nan=False)
finite = st.floats(allow_nan=False, allow_infinity=False)
maybe_number = st.none() | numbers
any_text = st.text(max_size=8)
mappings = st.dictionaries(any_text, finite | st.integers() | any_text | st.booleans(), max_size=4)
float32 = hnp.arrays(np.float32, st.integers(0, 6), elements=st.floats(width=32))
intervals = st.none() | st.builds(r.Interval, numbers, numbers)
id_lists = st.lists(int32, max_size=6).map(tuple)

samplings = st.builds(
    r.Sampling, finite, finite, st.none() | int64, finite, max_length=int64, seed=int64
)
problems = st.builds(r.Problem, texts, texts, texts, maybe_text)
trajectories = st.builds(
    r.Trajectory,
    key=texts,
    problem_id=texts,
    benchmark=texts,
    sample=int64,
    generator=texts,
    prompt_ids=id_lists,
    token_ids=id_lists,
    text=texts,
    finish_reason=st.sampled_from(["stop", "length"]),
    protocol=texts,
    sampling=samplings,
    retokenized=st.booleans(),
    reason=reasons,
)
maybe_place = st.none() | int64
grades = st.builds(
    r.Grade, texts, maybe_text, st.sampled_from(r.Verdict), reasons, maybe_place, maybe_place
)
traces = st.builds(
    r.Trace,
    key=texts,
    p=texts,
    q=texts,
    **dict.fromkeys(r.PER_TOKEN_FIELDS, float32),
    answer_start=st.none() | int64,
    answer_stop=st.none() | int64,
    turn_end=int64,
    dropped_mass_p=numbers,
    dropped_mass_q=numbers,
    exact=st.booleans(),
    status=st.sampled_from(["ok", "empty", "too_long", "nonfinite"]),
    reason=reasons,
    others=st.dictionaries(st.sampled_from(FURTHER), float32),
)
counts = st.builds(
    r.Counts,
    *(texts, texts, texts, finite, int64),
    *(st.none() | int64, st.none() | int64),
    *(int64, int64, finite, int64, int64),
)
their_verdicts = st.builds(
    r.TheirVerdict, texts, texts, st.sampled_from(list(r.Verdict)), maybe_text, reasons
)
step_labels = st.builds(r.StepLabels, texts, st.integers(-1, 9), id_lists, id_lists)
confidences = st.builds(r.Confidence, texts, texts, mappings, maybe_number, reasons)
evaluations = st.builds(
    r.Evaluation,
    benchmark=texts,
    generator=texts,
    estimator=texts,
    params=mappings,
    n=int64,
    accuracy=numbers,
    n_scored=int64,
    n_balanced=int64,
    ece=maybe_number,
    ece_sd=maybe_number,
    auroc=maybe_number,
    auroc_sd=maybe_number,
    natural_ece=maybe_number,
    natural_auroc=maybe_number,
    brier=maybe_number,
    aurc=maybe_number,
    natural_ece_interval=intervals,
    natural_auroc_interval=intervals,
    excluded=int64,
    excluded_by=st.dictionaries(any_text, st.integers(), max_size=3),
    clipped=int64,
    reason=reasons,
    aurc_interval=intervals,
    coverage_at_1=maybe_number,
    coverage_at_1_interval=intervals,
    coverage_at_5=maybe_number,
    coverage_at_5_interval=intervals,
    coverage_at_10=maybe_number,
    coverage_at_10_interval=intervals,
)

chains = st.builds(r.Chain, texts, texts, id_lists, id_lists, reasons)
finish_reasons = st.sampled_from(["stop", "length", "failed", "unknown"])
replies = st.builds(r.Reply, texts, texts, id_lists, texts, finish_reasons, reasons)
reading_kinds = st.sampled_from(["base_chat", "base_plain", "projected", "sampled"])
readings = st.builds(r.Reading, texts, texts, reading_kinds, float32, reasons)
rewards = st.builds(r.StepRewards, texts, texts, float32, reasons)
relevances = st.builds(r.Relevance, texts, texts, float32, reasons)

KINDS: list[tuple[Layout[Any], st.SearchStrategy[Any]]] = [
    (schema.PROBLEMS, problems),
    (schema.TRAJECTORIES, trajectories),
    (schema.VERDICTS, their_verdicts),
    (schema.STEP_LABELS, step_labels),
    (schema.GRADES, grades),
    (TRACES, traces),
    (schema.COUNTS, counts),
    (schema.CONFIDENCES, confidences),
    (schema.EVALUATIONS, evaluations),
    (CHAINS, chains),
    (REPLIES, replies),
    (READINGS, readings),
    (REWARDS, rewards),
    (RELEVANCE, relevances),
]
KIND_NAMES = [layout.name for layout, _ in KINDS]


def exact(value: object) -> object:
    """A form in which equality means the same type and the same bits, in nested values, too."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return (type(value), *(exact(getattr(value, name)) for name in names))
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape, value.tobytes())
    if isinstance(value, Mapping):
        return {key: exact(child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(exact(child) for child in value)
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, r.Reason):
        return (type(value), value.kind, str(value))
    return (type(value), value)


def grade(name: str, reason: str | None = None) -> r.Grade:
    return r.Grade(name, "42", r.Verdict.CORRECT, reason)


def trace(name: str, length: int = 3) -> r.Trace:
    arrays = {
        field: np.arange(length, dtype=np.float32) + index
        for index, field in enumerate(r.PER_TOKEN_FIELDS)
    }
    return r.Trace(
        key=name,
        p="large",
        q="small",
        **arrays,
        answer_start=None,
        answer_stop=None,
        turn_end=length,
        dropped_mass_p=0.0,
        dropped_mass_q=0.25,
    )
