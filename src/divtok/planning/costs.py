"""What generating, tracing and gathering would cost: hours and bytes from counts and model sizes.

Estimates, meant to be right within a factor of two. Every assumption stands here with where it
comes from, and `assumptions` says them to the user. Pure arithmetic: touches no model and no run.
"""

from __future__ import annotations

from typing import Protocol

from divtok.planning.model_facts import HUB_MODELS, ModelFact
from divtok.protocols.protocol import PROTOCOLS

GPU = "one NVIDIA H200"
GPU_BYTES = 141e9
USABLE_SHARE = 0.9
CPU = "2 CPU cores"
# Below this many parameters a model is planned for a CPU.
SMALL_MODEL = 10_000_000

# Tracing on an H200 was measured with the shapes of Qwen2.5-7B and 1.5B: 29,000 to 35,000 response
# tokens a second in bfloat16 (docs/performance.md). Others are scaled by their active weights.
_TRACED_TOKENS_PER_SECOND = 30_000
_TRACED_WEIGHTS = sum(
    HUB_MODELS[name].active for name in ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct")
)
_WEIGHTS_PER_SECOND = _TRACED_TOKENS_PER_SECOND * _TRACED_WEIGHTS

# Generation on a GPU is an assumption, not measured. A step of transformers starts some dozen
# kernels a layer one after the other, about a millisecond in all; reading weights and cache reaches
# about 0.6 of the card's 4.8 TB/s.
_LAYER_SECONDS = 1e-3
_BYTES_PER_SECOND = 0.6 * 4.8e12
# The longest of 128 responses over the mean, on real MATH-500 responses: 2 for two Gemma models,
# 6 and 10 for two Qwen ones, which now and then run on to the limit.
_LONGEST_OVER_MEAN = 4
_REPLY_TOKENS = 50

# Tokens (or replies) a second with the embedded family. Measured on one core, 256 responses a size:
# 2,300 to 3,000 written, 4,400 to 7,500 traced, 3,100 chained, 8,000 to 17,000 read, 12 to 24
# replies. A second core helps reading more than writing.
_CPU_WRITTEN = 2_800
_CPU_TRACED = 9_000
_CPU_CHAINED = 4_000
_CPU_READ = 13_000
_CPU_REPLIES = 20

# Measured on stored tables: a trace is 7 float32 numbers a token, which hardly compress; ids and
# text of real responses took 1 to 2 bytes a token; other rows 25 to 125 bytes each.
TRACE_BYTES_PER_TOKEN = 28
READING_BYTES_PER_TOKEN = 4
TRAJECTORY_BYTES_PER_TOKEN = 2
ROW_BYTES = 200

# Mean tokens of a response. MATH-500: 1,500 real greedy responses of three models have 1,370 to
# 1,850 characters, 450 to 790 tokens, and the newer models write more. The others are guesses.
_MEAN_TOKENS = {
    "math500": 700,
    "math-train": 700,
    "amc23": 1_200,
    "aime24": 1_800,
    "aime25": 1_800,
    "hmmt25": 1_800,
    "hmmt26": 1_800,
}
# The same for generators that may write more than 8192 tokens, which are the ones that do.
_MEAN_TOKENS_LONG = {
    "math500": 2_000,
    "math-train": 2_000,
    "amc23": 4_000,
    "aime24": 7_000,
    "aime25": 7_000,
    "hmmt25": 8_000,
    "hmmt26": 8_000,
}
_LONG_FROM = 8_192
# Measured on the embedded family; it writes the protocols that state a confidence a third longer.
_MEAN_TOKENS_EMBEDDED = {
    "arith-easy": 86,
    "arith-medium": 119,
    "arith-hard": 162,
    "arith-contest": 199,
    "arith-fit": 143,
}
_STATED_OVER_PLAIN = 1.3
_MEAN_TOKENS_UNKNOWN = 1_500


class Reading(Protocol):
    """The hours that one model takes to read so many tokens."""

    def __call__(self, fact: ModelFact, /, *, tokens: float) -> float: ...


def assumed_tokens(benchmark: str, *, protocol: str, max_length: int) -> float:
    """Mean tokens of a response before there are any; never more than the limit."""
    if benchmark in _MEAN_TOKENS_EMBEDDED:
        stated = _STATED_OVER_PLAIN if PROTOCOLS.get(protocol).states_confidence else 1.0
        return min(_MEAN_TOKENS_EMBEDDED[benchmark] * stated, max_length)
    known = _MEAN_TOKENS_LONG if max_length > _LONG_FROM else _MEAN_TOKENS
    return min(known.get(benchmark, _MEAN_TOKENS_UNKNOWN), max_length)


def writing_hours(
    fact: ModelFact, *, rows: int, tokens: float, limit: int, batch_size: int
) -> float:
    """Sampling `rows` responses of `tokens` on average, none longer than `limit`.

    A batch takes as many steps as its longest row has tokens. On a GPU a step takes the kernels of
    every layer or all weights from memory, whichever is slower; on top comes reading the cache,
    which grows with each row until the row ends.
    """
    if on_cpu(fact):
        return rows * tokens / _CPU_WRITTEN / 3600
    steps = min(_LONGEST_OVER_MEAN * tokens, limit)
    step = max(fact.layers * _LAYER_SECONDS, fact.weight_bytes / _BYTES_PER_SECOND)
    # A row's cache is read once for each of its tokens, at half its final size on average.
    cache = rows * tokens * fact.cache_bytes(tokens / 2) / _BYTES_PER_SECOND
    return (rows / batch_size * steps * step + cache) / 3600


def tracing_hours(p: ModelFact, q: ModelFact, *, tokens: float) -> float:
    if on_cpu(p) and on_cpu(q):
        return tokens / _CPU_TRACED / 3600
    return tokens * (p.active + q.active) / _WEIGHTS_PER_SECOND / 3600


def chain_hours(p: ModelFact, /, *, tokens: float) -> float:
    """The attention chain, which comes with p's pass: counted as one more pass of it."""
    if on_cpu(p):
        return tokens / _CPU_CHAINED / 3600
    return tokens * p.active / _WEIGHTS_PER_SECOND / 3600


def reading_hours(fact: ModelFact, /, *, tokens: float) -> float:
    """One model reads all tokens: a base model, or a reward model."""
    if on_cpu(fact):
        return tokens / _CPU_READ / 3600
    return tokens * fact.active / _WEIGHTS_PER_SECOND / 3600


def reply_hours(fact: ModelFact, *, rows: int, tokens: float, limit: int, batch_size: int) -> float:
    """The generator reads its `rows` responses again, `tokens` in all, and writes a short reply."""
    if on_cpu(fact):
        return rows / _CPU_REPLIES / 3600
    written = writing_hours(
        fact, rows=rows, tokens=min(_REPLY_TOKENS, limit), limit=limit, batch_size=batch_size
    )
    return reading_hours(fact, tokens=tokens) + written


def on_cpu(fact: ModelFact) -> bool:
    return fact.parameters < SMALL_MODEL


def too_large(*facts: ModelFact) -> bool:
    """Whether the weights of models that are loaded together leave no room on one GPU."""
    return sum(fact.weight_bytes for fact in facts) > USABLE_SHARE * GPU_BYTES


def fitting_rows(fact: ModelFact, tokens: float) -> int:
    """Rows whose keys and values surely fit on one GPU beside the weights, as a power of two.

    Rows leave as they end, so that there are never more tokens than rows times their mean.
    """
    free = USABLE_SHARE * GPU_BYTES - fact.weight_bytes
    rows = int(free / fact.cache_bytes(tokens))
    return 1 << (rows.bit_length() - 1) if rows > 0 else 0


def assumptions(*, gpu: bool, cpu: bool, api: bool, assumed: bool) -> tuple[str, ...]:
    """What the figures rest on, as sentences; only those that matter for the plan at hand."""
    said: list[str] = ["Hours and tokens are estimates, meant to be right within a factor of two."]
    if assumed:
        said.append(
            "Mean lengths of responses are assumed for each benchmark until a run has some of its "
            "own; only those of MATH-500 and of the embedded benchmarks rest on real responses."
        )
    if gpu:
        said += [
            f"GPU hours are for {GPU} ({GPU_BYTES / 1e9:.0f} GB) and models in bfloat16.",
            f"Tracing: {_TRACED_TOKENS_PER_SECOND:,} tokens a second for Qwen2.5-7B with 1.5B, as "
            "measured, scaled by the weights a token goes through. Base and reward models alike; "
            "an attention chain counts as one more pass of the generator, which is not measured.",
            "Generation, not measured: steps of transformers, 1 ms a layer or all weights and the "
            "cache at 0.6 of 4.8 TB/s; a batch runs until its longest response ends, taken as "
            f"{_LONGEST_OVER_MEAN} times the mean and at most the limit.",
            "Downloads are the weights in bfloat16; benchmarks and tokenizers add some MB.",
        ]
    if cpu:
        said.append(
            f"Minutes are for {CPU}, from rates measured with the embedded family: "
            f"{_CPU_WRITTEN:,} tokens a second written, {_CPU_TRACED:,} traced."
        )
    if api:
        said.append("What is written through an API takes no GPU; its price is not counted.")
    said.append("Prompts, grading, scoring and evaluation are not counted: they take little.")
    return tuple(said)
