"""How long it takes: operations and tokens a second for one pair, hours for the steps of a run.

Estimates, meant to be right within a factor of two. Every assumption is here, with where it comes
from, and `assumptions` tells them to the user. Pure arithmetic: touches no model, no device and no
run.

Tracing is estimated in two ways, because different things are known. `tokens_per_second` is for
this machine: it counts the operations of exact shapes and is given the speed of the device, timed a
moment ago. `reading_hours` is for a machine that need not be here: it scales one measured rate by
the weights that a token goes through. That rate already holds what attention and the comparison of
two distributions took.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from divtok.models.sizes import HUB_MODELS, ModelSize
from divtok.planning.memory import GPU, GPU_BYTES

if TYPE_CHECKING:
    from divtok.planning.model_shapes import ModelShape

ReadingKind = Literal["trace", "chain", "base", "rewards"]

# The share of the speed of a bare matrix product that tracing reaches. Measured: 0.56 to 0.69 for a
# 7B and a 1.5B model in bfloat16 on one H200; in float32 on one core of a CPU 0.46 to 0.67 for
# models of 6 to 220 million parameters, and 0.35 for the embedded family, whose matrices are small.
EFFICIENCY = 0.6

# Tracing on an H200 was measured with the shapes of Qwen2.5-7B and 1.5B: 29,000 to 35,000 response
# tokens a second in bfloat16 (docs/performance.md). Others are scaled by their active weights.
_TRACED_TOKENS_PER_SECOND = 30_000
_WEIGHTS_PER_SECOND = _TRACED_TOKENS_PER_SECOND * sum(
    HUB_MODELS[name].active for name in ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct")
)

# Generation on a GPU is an assumption, not measured. A step of transformers starts some dozen
# kernels a layer one after the other, about a millisecond in all; reading weights and cache reaches
# about 0.6 of the card's 4.8 TB/s.
_LAYER_SECONDS = 1e-3
_BYTES_PER_SECOND = 0.6 * 4.8e12
# The longest of 128 responses over the mean, on real MATH-500 responses: 2 for two Gemma models,
# 6 and 10 for two Qwen ones, which now and then run on to the limit.
_LONGEST_OVER_MEAN = 4
_REPLY_TOKENS = 50

# Below this many parameters a model is planned for a CPU.
_SMALL_MODEL = 10_000_000
CPU = "2 CPU cores"
# Tokens (or replies) a second with the embedded family. Measured on one core, 256 responses a size:
# 2,300 to 3,000 written, 4,400 to 7,500 traced, 3,100 chained, 8,000 to 17,000 read by a base or
# reward model, 12 to 24 replies. A second core helps reading more than writing.
_CPU_WRITTEN = 2_800
_CPU_READ: Mapping[ReadingKind, int] = {
    "trace": 9_000,
    "chain": 4_000,
    "base": 13_000,
    "rewards": 13_000,
}
_CPU_REPLIES = 20


@dataclass(frozen=True, slots=True)
class Flops:
    """Floating-point operations for one token through one model."""

    linear: int
    attention: int
    head: int

    @property
    def total(self) -> int:
        return self.linear + self.attention + self.head


def flops_per_token(shape: ModelShape, length: int) -> Flops:
    """2 for each active weight, 4 L A T/2 for attention (causal), and 2 V D for the output layer.

    Attention is taken as full in every layer; sliding windows make it less.
    """
    return Flops(
        linear=2 * shape.active_parameters,
        attention=2 * shape.layers * shape.attention_size * length,
        head=2 * shape.head_width * shape.hidden_size,
    )


def tokens_per_second(
    p: ModelShape, q: ModelShape, length: int, *, rates: Mapping[str, float], row_seconds: float
) -> float:
    """1 / (F_p / (E R_p) + F_q / (E R_q) + S), an estimate.

    F are the operations of one token, R the `rates` of matrix products in the model's dtype
    (operations a second), E the efficiency, and S, `row_seconds`, is what comparing the two
    distributions of one token takes.
    """
    products = sum(
        flops_per_token(shape, length).total / (EFFICIENCY * rates[shape.dtype]) for shape in (p, q)
    )
    return 1 / (products + row_seconds)


def on_cpu(model: ModelSize) -> bool:
    return model.parameters < _SMALL_MODEL


def reading_hours(kind: ReadingKind, *models: ModelSize, tokens: float) -> float:
    """Models read all tokens: a pair that traces, a base model, or a reward model.

    An attention chain comes with p's pass, and is counted as one more pass of it.
    """
    if all(on_cpu(model) for model in models):
        return tokens / _CPU_READ[kind] / 3600
    return tokens * sum(model.active for model in models) / _WEIGHTS_PER_SECOND / 3600


def writing_hours(
    model: ModelSize, *, rows: int, tokens: float, limit: int, batch_size: int
) -> float:
    """Sampling `rows` responses of `tokens` on average, none longer than `limit`.

    A batch takes as many steps as its longest row has tokens. On a GPU a step takes the kernels of
    every layer or all weights from memory, whichever is slower; on top comes reading the cache,
    which grows with each row until the row ends.
    """
    if on_cpu(model):
        return rows * tokens / _CPU_WRITTEN / 3600
    steps = min(_LONGEST_OVER_MEAN * tokens, limit)
    step = max(model.layers * _LAYER_SECONDS, model.weight_bytes / _BYTES_PER_SECOND)
    # A row's cache is read once for each of its tokens, at half its final size on average.
    cache = rows * tokens * model.cache_bytes(tokens / 2) / _BYTES_PER_SECOND
    return (rows / batch_size * steps * step + cache) / 3600


def reply_hours(
    model: ModelSize, *, rows: int, tokens: float, limit: int, batch_size: int
) -> float:
    """The generator reads its `rows` responses again, `tokens` in all, and writes a short reply."""
    if on_cpu(model):
        return rows / _CPU_REPLIES / 3600
    written = writing_hours(
        model, rows=rows, tokens=min(_REPLY_TOKENS, limit), limit=limit, batch_size=batch_size
    )
    return reading_hours("base", model, tokens=tokens) + written


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
            "measured, scaled by the weights a token goes through. The same holds for base and "
            "reward models; an attention chain counts as one more pass of the generator, which is "
            "not measured.",
            "Generation, not measured: steps of transformers, 1 ms a layer or all weights and the "
            "cache at 0.6 of 4.8 TB/s; a batch runs until its longest response ends, taken as "
            f"{_LONGEST_OVER_MEAN} times the mean and at most the limit.",
            "Downloads are the weights in bfloat16; benchmarks and tokenizers add a few MB.",
        ]
    if cpu:
        said.append(
            f"Minutes are for {CPU}, from rates measured with the embedded family: "
            f"{_CPU_WRITTEN:,} tokens a second written, {_CPU_READ['trace']:,} traced."
        )
    if api:
        said.append("What is written through an API takes no GPU; its price is not counted.")
    said.append("Prompts, grading, scoring and evaluation are not counted: they take little time.")
    return tuple(said)
