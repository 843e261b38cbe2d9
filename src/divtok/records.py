"""The nouns of divtok: frozen records that every stage takes in and hands on.

Imports numpy and nothing else of weight. It knows no model, no file and no estimator; it only says
what a problem, a trajectory, a grade, a trace, a confidence and an evaluation are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
Scalar = float | int | str | bool

# "unknown": it came from elsewhere without a word on how it ended. "failed": there is no response.
FinishReason = Literal["stop", "length", "unknown", "failed"]
TraceStatus = Literal["ok", "empty", "too_long", "nonfinite", "failed"]
ReadingKind = Literal["base_chat", "base_plain", "projected", "sampled"]
CallPurpose = Literal["response", "reply"]
# Where an answer was found that is not where its protocol asks for it.
Fallback = Literal["unclosed_box", "phrase", "last_number"]
# Which response tokens can count as divergent: without the answer's and the end-of-turn token,
# without the answer's alone, or all.
CountedTokens = Literal["reasoning", "no_answer", "all"]

# The per-token arrays of a trace, in storage order. Units are part of the names or given in Trace.
PER_TOKEN_FIELDS = (
    "logprob_p",
    "logprob_q",
    "entropy_p",
    "entropy_q",
    "jsd_bits",
    "kl_pq",
    "kl_qp",
)
# Those beside them of a trace that is not exact.
BOUND_FIELDS = ("jsd_low_bits", "jsd_high_bits")

# The kinds of a grade's reason where there is no gold answer to compare a response with, and where
# the verdicts of another tool are the grades and it gave none.
GOLD_MISSING = "gold_missing"
VERDICT_MISSING = "verdict_missing"


class Reason(str):
    """Why there is no value: a text for people, with a kind that code may switch on.

    It is its text; nothing may depend on how that is worded.
    """

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, kind: str, text: str) -> Self:
        reason = super().__new__(cls, text)
        reason.kind = kind
        return reason

    def __reduce__(self) -> tuple[type[Reason], tuple[str, str]]:
        return Reason, (self.kind, str(self))


def reason_kind(reason: str | None) -> str | None:
    """The kind of a reason; None where there is none, or only a text."""
    return reason.kind if isinstance(reason, Reason) else None


class Verdict(StrEnum):
    """What grading found. Compares equal to its plain string.

    Example:
        >>> import divtok
        >>> divtok.grade_answer(gold="1/2", answer="0.5") == "correct"
        True
    """

    CORRECT = "correct"
    INCORRECT = "incorrect"
    UNANSWERED = "unanswered"  # no final answer was found in the response
    UNDETERMINED = "undetermined"  # an answer was found, but it could not be decided


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its gold answer. `answer` is None where the benchmark has none.

    Example:
        >>> import divtok
        >>> divtok.Problem("1", "mine", question="What is 1 + 1?", answer="2").answer
        '2'
    """

    id: str
    benchmark: str
    question: str
    answer: str | None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a trajectory was sampled. `max_length` counts prompt and response tokens together.

    Example:
        >>> import divtok
        >>> divtok.Sampling(temperature=1.0, seed=7).top_p
        0.95
    """

    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int | None = None
    presence_penalty: float = 0.0
    max_length: int = 8192
    seed: int = 0

    def __post_init__(self) -> None:
        # 1 and 1.0 are one temperature, so they must give one trajectory key.
        for name in ("temperature", "top_p", "presence_penalty"):
            object.__setattr__(self, name, float(getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The sampled tokens of one response. Written once, never changed again.

    Both lists of ids are empty where the generator gave its text alone. `sampling` is None where it
    is not known how the response was sampled. A failed response keeps its row: its
    finish reason is "failed", its text is empty and `reason` says what happened. `reason` is also
    set where a generator refused or called a tool instead of answering.

    Example:
        >>> import divtok
        >>> run = divtok.run(family="tiny", limit=2, benchmarks=["arith-easy"], out="example")
        >>> run.trajectories["finish_reason"][0]
        'stop'
    """

    key: str
    problem_id: str
    benchmark: str
    sample: int
    generator: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    protocol: str
    sampling: Sampling | None
    retokenized: bool = False  # True where the ids come from text, not from the generator
    reason: str | None = None

    @property
    def truncated(self) -> bool:
        return self.finish_reason == "length"

    @property
    def failed(self) -> bool:
        return self.finish_reason == "failed"


@dataclass(frozen=True, slots=True)
class Call:
    """What it took to get one answer from a server. `reason` is set where none was got.

    `setbacks` says in order why earlier attempts came to nothing. Tokens and cost are None where
    the server did not count or no prices are known; the key that was sent is in no field.
    """

    key: str
    purpose: CallPurpose
    server: str
    model: str  # as the server calls it
    attempts: int
    setbacks: tuple[str, ...]
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: float | None
    seconds: float
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened while rows were made, such as that memory ran out."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class PairWarning:
    """Why the figures of a pair may mean nothing. Code switches on `kind`, `text` is for people."""

    p: str
    q: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Grade:
    """Right, wrong, or why not decided. `reason` is set whenever the verdict needs explaining.

    `answer_start`:`answer_stop` are the characters of the response's text that the answer was read
    from; both are None where there is none, and in grades of older runs. `fallback` says how it
    was found where the protocol's own way found none.

    Example:
        >>> import divtok
        >>> (found,) = divtok.grade([{"gold": "3", "response": "It is \\\\boxed{4}."}])
        >>> found.extracted, found.verdict.value
        ('4', 'incorrect')
    """

    key: str
    extracted: str | None
    verdict: Verdict
    reason: str | None = None
    answer_start: int | None = None
    answer_stop: int | None = None
    fallback: Fallback | None = None


@dataclass(frozen=True, slots=True)
class TheirVerdict:
    """What the tool that a response was imported from says of it; never compared by divtok.

    `scorer` is its own name for what judged, `extracted` the answer it read. A score between right
    and wrong is undetermined, with the reason.
    """

    key: str
    scorer: str
    verdict: Verdict
    extracted: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class FirstWrong:
    """Which step of a response is the first wrong one, from 0; None: no step is wrong.

    Where that is not known, `reason` says why.
    """

    step: int | None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class StepLabels:
    """What the file that a response was imported from says of its steps.

    Step i is the characters `starts[i]`:`stops[i]` of the text; `first_wrong` is the first wrong
    one, from 0, or -1 where none is wrong.
    """

    key: str
    first_wrong: int
    starts: tuple[int, ...]
    stops: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Trace:
    """Per-token numbers of one trajectory under one pair (p, q): divergences, never decisions.

    Arrays have shape [T], T the number of response tokens. `jsd_bits` is in bits; log-probs,
    entropies and both KLs are in nats. Where `status` is not "ok" the arrays are empty and
    `reason` says what happened.

    Where `exact` is False the divergences are known within bounds only: `jsd_low_bits` and
    `jsd_high_bits` enclose each, `jsd_bits` is their middle, and entropies and KLs are NaN.

    `others` holds further divergences that were asked for, by their columns.

    `answer_start`:`answer_stop` are the tokens that overlap the final answer's content (None where
    there is no answer), and tokens from `turn_end` on close the turn. Both stay in the arrays;
    `reasoning()` leaves them out, unless `counted` says that they count. That is no part of what
    was read: whoever counts sets it.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> result = divtok.confidence("What is 1 + 1?", "It is \\\\boxed{2}.", pair=pair)
        >>> trace = result.trace
        >>> len(trace) - int(trace.reasoning().sum())  # the answer
        1
    """

    key: str
    p: str
    q: str
    logprob_p: FloatArray
    logprob_q: FloatArray
    entropy_p: FloatArray
    entropy_q: FloatArray
    jsd_bits: FloatArray
    kl_pq: FloatArray
    kl_qp: FloatArray
    answer_start: int | None
    answer_stop: int | None
    turn_end: int
    dropped_mass_p: float  # largest probability mass cut off with the unshared vocabulary tail
    dropped_mass_q: float
    exact: bool = True
    retokenized: bool = False  # True where p's tokenizer made the ids, from the response's text
    status: TraceStatus = "ok"
    reason: str | None = None
    jsd_low_bits: FloatArray | None = None  # None where `exact`
    jsd_high_bits: FloatArray | None = None
    others: Mapping[str, FloatArray] = field(default_factory=dict[str, FloatArray])
    counted: CountedTokens = "reasoning"

    def per_token(self, column: str) -> FloatArray | None:
        """[T] the numbers of a column, be it a further divergence; None where it was not traced."""
        return getattr(self, column) if column in PER_TOKEN_FIELDS else self.others.get(column)

    def __len__(self) -> int:
        return len(self.jsd_bits)

    def __repr__(self) -> str:
        """Without the arrays, so that it fits on a screen."""
        head = f"<Trace of {shortened(self.key, 40)}: " if self.key else "<Trace: "
        if self.status != "ok":
            return f"{head}{self.status}\n  {shortened(str(self.reason))}>"
        bits, counted = self.jsd_bits, int(self.reasoning().sum())
        bounds = "" if self.exact else ", within bounds"
        found = "none"
        if len(bits):
            found = f"{bits.min():.4f} to {bits.max():.4f}, mean {bits.mean():.4f}"
        return "\n".join(
            [
                f"{head}{len(self)} tokens, {counted} of them {_THOSE[self.counted]}",
                f"  p: {shortened(self.p)}",
                f"  q: {shortened(self.q)}",
                f"  jsd_bits: {found}{bounds}>",
            ]
        )

    def reasoning(self) -> npt.NDArray[np.bool_]:
        """[T] mask of the tokens that can count as divergent, see `counted`.

        Those are the reasoning: not the answer, not the end of turn.
        """
        mask = np.ones(len(self), dtype=bool)
        leave_out(mask, self.answer_start, self.answer_stop, self.turn_end, self.counted)
        return mask


_THOSE = {"reasoning": "reasoning", "no_answer": "not the answer", "all": "counted"}


def leave_out(
    mask: npt.NDArray[np.bool_],
    answer_start: int | None,
    answer_stop: int | None,
    turn_end: int,
    counted: CountedTokens,
) -> None:
    """Clear what cannot count of a response's tokens, [T]."""
    if counted == "reasoning":
        mask[turn_end:] = False
    if counted != "all" and answer_start is not None and answer_stop is not None:
        mask[answer_start:answer_stop] = False


@dataclass(frozen=True, slots=True)
class Chain:
    """The response tokens that attention links to the answer (UQAC), under one model.

    `tokens` are positions in the response, rising, the answer's own among them; `similar` are those
    of them whose hidden states are most like the answer's, and the answer's own. Where there is no
    chain both are empty and `reason` says why.
    """

    key: str
    model: str
    tokens: tuple[int, ...]
    similar: tuple[int, ...]
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Log-probabilities [T] in nats that one more model gives to the response tokens.

    The paired base model read the chat prompt ("base_chat") or the bare question ("base_plain"), or
    its output layer read the generator's hidden states through an affine map ("projected"), or the
    generator's server reported them while it sampled ("sampled"). Where `reason` is set the array
    is empty.
    """

    key: str
    model: str
    kind: ReadingKind
    logprob: FloatArray
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StepRewards:
    """What a process reward model gives to each line of a response, [S] in [0, 1].

    Where `reason` is set the array is empty. `length` counts the tokens of question and response,
    `trained_length` those the model was trained to read at once; both are None in rows of older
    runs, none of which is longer, and `trained_length` where a model has no such limit.
    """

    key: str
    model: str
    rewards: FloatArray
    reason: str | None = None
    length: int | None = None
    trained_length: int | None = None

    @property
    def beyond(self) -> bool:
        """Whether the response is longer than what the model was trained to read."""
        if self.length is None or self.trained_length is None:
            return False
        return self.length > self.trained_length


@dataclass(frozen=True, slots=True)
class Reply:
    """What the generator said when it was asked, in a further turn, how sure it is.

    `text` is empty where `reason` says why it could not be asked.
    """

    key: str
    model: str
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Statement:
    """A stated confidence in [0, 1] as read from a text; None always comes with a reason."""

    value: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Relevance:
    """Weights [T] that say how much each response token matters, from whatever source.

    Where `reason` is set the array is empty.
    """

    key: str
    source: str
    weights: FloatArray
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Confidence:
    """One estimator's value for one trajectory; None always comes with a reason.

    Where the trace gives bounds only, the value an exact trace would give lies between `low` and
    `high`; both are None where the trace is exact. `prior` is the share of right answers that value
    and bounds are stated for; None where they are as the estimator gives them.

    Example:
        >>> import divtok
        >>> divtok.Confidence("key", "nsl", {}, None, "empty: no tokens").value is None
        True
    """

    key: str
    estimator: str
    params: Mapping[str, Scalar]
    value: float | None
    reason: str | None = None
    low: float | None = None
    high: float | None = None
    prior: float | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What a trace counts at one theta: divergent tokens (m), response and reasoning tokens.

    Where the trace gives bounds only, the count of an exact trace lies between `low` and `high`;
    both are None where the trace is exact. Of the reasoning tokens within `band_bits` of theta,
    `near_above` are divergent and `near_below` are not: rounding might move them. `counted` says
    which tokens are meant by reasoning.
    """

    key: str
    p: str
    q: str
    theta: float
    count: int
    low: int | None
    high: int | None
    length: int
    reasoning: int
    band_bits: float
    near_above: int
    near_below: int
    counted: CountedTokens = "reasoning"


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval; whole problems were resampled."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good one estimator is for one generator on one benchmark. Fractions, not percent.

    `ece`, `auroc` and their sd come from the balanced draws of the paper's protocol; `natural_*`,
    `brier`, `aurc`, `coverage_at_*`, `mean_confidence` and `share_right`, which the mean confidence
    should be, use every scored response at its natural prevalence. Chance makes a measured ECE too
    large: `natural_ece_debiased` and the interval are about the true one, and `natural_ece_floor`
    is what a perfectly calibrated estimator would show.

    Example:
        >>> import divtok
        >>> (found,) = divtok.evaluate([0.9, 0.8, 0.3, 0.1], [True, True, False, False])
        >>> found.accuracy, found.auroc
        (0.5, 1.0)
    """

    benchmark: str
    generator: str
    estimator: str
    params: Mapping[str, Scalar]
    n: int  # every response that could be graded, the denominator of accuracy
    accuracy: float | None  # None where most responses hold no answer that was found
    n_scored: int  # responses left after the exclusions
    n_balanced: int  # responses per class in each balanced draw
    ece: float | None
    ece_sd: float | None
    auroc: float | None
    auroc_sd: float | None
    natural_ece: float | None
    natural_auroc: float | None
    brier: float | None
    aurc: float | None
    natural_ece_interval: Interval | None
    natural_auroc_interval: Interval | None
    excluded: int
    excluded_by: Mapping[str, int] = field(default_factory=dict)
    clipped: int = 0  # values outside [0, 1] that were clipped for ECE and Brier
    natural_ece_debiased: float | None = None
    natural_ece_floor: float | None = None
    brier_interval: Interval | None = None
    mean_confidence: float | None = None  # of the scored responses
    share_right: float | None = None  # of the scored responses
    reason: str | None = None  # why a metric is None
    # Of the scored responses those that are longer than `trained_length`, the tokens that the model
    # behind the estimator was trained to read; both None where there is no such model.
    beyond: int | None = None
    trained_length: int | None = None
    fallbacks: int | None = None  # answers found by one; None where none was looked for
    # None in rows of older runs, too. A coverage is the largest share of the scored responses that
    # a threshold accepts with at most 1, 5 or 10 % wrong answers among them.
    aurc_interval: Interval | None = None
    coverage_at_1: float | None = None
    coverage_at_1_interval: Interval | None = None
    coverage_at_5: float | None = None
    coverage_at_5_interval: Interval | None = None
    coverage_at_10: float | None = None
    coverage_at_10_interval: Interval | None = None


def shortened(text: str, longest: int = 80) -> str:
    """A name or a path, quoted and on one line of a screen; of a long one its end."""
    quoted = repr(str(text))
    return quoted if len(quoted) <= longest else "'..." + quoted[4 - longest :]


def trajectory_key(
    problem: Problem, *, generator: str, protocol: str, sampling: Sampling | None, sample: int
) -> str:
    """The stable name of one trajectory: it joins every table and makes resume exact.

    The question's text is part of it, so an edited problem is another problem.
    """
    identity = [
        problem.benchmark,
        problem.id,
        problem.question,
        generator,
        protocol,
        None if sampling is None else asdict(sampling),
        sample,
    ]
    canonical = json.dumps(identity, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:24]
