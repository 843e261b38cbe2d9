"""Whether a tracing job can be done, from the shapes of two models: memory, speed and advice.

Pure arithmetic on frozen records: no model, no tokenizer and no device is touched here. `shapes`
reads the records from model configs, `machine` measures the device. The formulas stand with the
functions; both memory and speed are estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

# The share of the speed of a bare matrix product that tracing reaches. Measured: 0.56 to 0.69 for a
# 7B and a 1.5B model in bfloat16 on one H200; in float32 on one core of a CPU 0.46 to 0.67 for
# models of 6 to 220 million parameters, and 0.35 for the embedded family, whose matrices are small.
EFFICIENCY = 0.6

# The rest is for what allocators lose between blocks, and for all that is not a tensor.
USABLE_SHARE = 0.9
PROMPT_TOKENS = 256  # room for the prompt that a default length leaves
DEFAULT_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What memory and speed depend on in one model, and the number type it is to run in.

    `parameters` are all weights, tied ones once. `active_parameters` are those of the trunk that
    one token goes through: without embeddings and output layer, and of the experts only the share
    that is chosen. `attention_size` is heads times the width of one.
    """

    name: str
    architecture: str
    parameters: int
    active_parameters: int
    head_width: int
    hidden_size: int
    intermediate_size: int
    attention_size: int
    attention_heads: int
    layers: int
    context_length: int | None
    dtype: str
    stored_dtype: str | None = None
    softcap: float | None = None
    logit_scale: float = 1.0
    keeps_scores: bool = False  # True where attention holds its whole matrix of scores
    quantised: bool = False

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Batch:
    """What is read at once: `rows` responses of `length` tokens."""

    rows: int
    length: int

    @property
    def tokens(self) -> int:
        return self.rows * self.length


@dataclass(frozen=True, slots=True)
class Flops:
    """Floating-point operations for one token through one model."""

    linear: int
    attention: int
    head: int

    @property
    def total(self) -> int:
        return self.linear + self.attention + self.head


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a job needs at its peak, by what they are for. `free` is None where it is not known."""

    weights_p: int
    weights_q: int
    activations: int
    hidden_states: int
    workspace: int
    free: int | None

    @property
    def total(self) -> int:
        parts = (self.weights_p, self.weights_q, self.activations, self.hidden_states)
        return sum(parts) + self.workspace

    @property
    def fits(self) -> bool | None:
        """None where the free memory is not known."""
        return None if self.free is None else self.total <= USABLE_SHARE * self.free


@dataclass(frozen=True, slots=True)
class Measured:
    """How fast a pair really traced random tokens, and the batch it did so with."""

    tokens_per_second: float
    batch: Batch


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a job cannot be done, and what to do about it."""

    what: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Feasibility:
    """All that is known of a job before it starts. It can be done where there are no problems."""

    p: ModelShape
    q: ModelShape
    device: str
    same_tokens: bool  # whether an id stands for the same token in both
    length: int
    batch: Batch
    memory: Memory
    estimated: float | None  # tokens a second; None where the device could not be timed
    tokens: int | None
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]  # what is special about the models
    advice: tuple[str, ...]  # about the number type
    measured: Measured | None = None

    @property
    def shared_width(self) -> int:
        """How many tokens the distributions of both models are cut to."""
        return min(self.p.head_width, self.q.head_width)

    @property
    def hours(self) -> float | None:
        """For all tokens of the job, as measured or else as estimated."""
        speed = self.estimated if self.measured is None else self.measured.tokens_per_second
        return None if self.tokens is None or speed is None else self.tokens / speed / 3600


def plan_batch(length: int, *, max_tokens: int, max_rows: int) -> Batch:
    """The batch that tracing makes of rows this long: one row at least, however long it is."""
    return Batch(max(1, min(max_rows, max_tokens // length)), length)


def default_length(context_length: int | None) -> int:
    """Response tokens to plan with: 4096, or what the models can read besides a prompt."""
    if context_length is None:
        return DEFAULT_LENGTH
    return min(DEFAULT_LENGTH, context_length - min(PROMPT_TOKENS, context_length // 2))


def shared_context(p: ModelShape, q: ModelShape) -> int | None:
    """What both models can read, prompt and response together; None without a limit."""
    return min((s.context_length for s in (p, q) if s.context_length is not None), default=None)


def length_problem(p: ModelShape, q: ModelShape, length: int) -> Problem | None:
    """A response needs room in both models, and one prompt token before it."""
    for shape in (p, q):
        if shape.context_length is not None and length >= shape.context_length:
            return Problem(
                f"A response of {length:,} tokens is too long: {shape.name} reads "
                f"{shape.context_length:,}, prompt included.",
                "Give a smaller --length, or use models that read more.",
            )
    return None


def flops_per_token(shape: ModelShape, length: int) -> Flops:
    """2 for each active weight, 4 L A T/2 for attention (causal), and 2 V D for the output layer.

    Attention is taken as full in every layer; sliding windows make it less.
    """
    return Flops(
        linear=2 * shape.active_parameters,
        attention=2 * shape.layers * shape.attention_size * length,
        head=2 * shape.head_width * shape.hidden_size,
    )


def activation_bytes(shape: ModelShape, batch: Batch) -> int:
    """What one trunk holds at its peak while it reads a batch, and half of that again.

    A token needs b (4 D + max(6 A, 3 I)): the residual stream and its norms, and either queries,
    keys and values with their rotated copies, or both halves of the feed-forward layer and their
    product. Padding and sliding windows add a mask of 1 + b bytes for each earlier token, which is
    counted always; attention that keeps
    its scores adds b + 4 for each head and earlier token. b is the size of a number.

    The half is for what allocators keep: on a CPU the process grew by 0.7 to 1.5 times the tensors'
    own size, in float32 and bfloat16, so by at most what is given here.
    """
    size = shape.dtype_bytes
    layer = max(6 * shape.attention_size, 3 * shape.intermediate_size)
    token = size * (4 * shape.hidden_size + layer)
    token += batch.length * (1 + size)
    if shape.keeps_scores:
        token += batch.length * shape.attention_heads * (size + 4)
    return 3 * token * batch.tokens // 2


def memory_needed(
    p: ModelShape, q: ModelShape, batch: Batch, *, workspace_bytes: int, free: int | None
) -> Memory:
    """Both models stay loaded; they read one after the other, and the head stage comes last.

    The hidden states of both are kept for the head stage; the larger of the two trunks sets the
    peak of the activations.
    """
    return Memory(
        weights_p=p.parameters * p.dtype_bytes,
        weights_q=q.parameters * q.dtype_bytes,
        activations=max(activation_bytes(shape, batch) for shape in (p, q)),
        hidden_states=batch.tokens * sum(s.hidden_size * s.dtype_bytes for s in (p, q)),
        workspace=workspace_bytes,
        free=free,
    )


def tokens_per_second(
    p: ModelShape, q: ModelShape, length: int, *, rates: Mapping[str, float], row_seconds: float
) -> float:
    """1 / (F_p / (E R_p) + F_q / (E R_q) + S), an estimate.

    F are the operations of one token, R the `rates` of matrix products in the model's number type
    (operations a second), E the efficiency, and S, `row_seconds`, is what comparing the two
    distributions of one token takes.
    """
    products = sum(
        flops_per_token(shape, length).total / (EFFICIENCY * rates[shape.dtype]) for shape in (p, q)
    )
    return 1 / (products + row_seconds)


def dtype_advice(p: ModelShape, q: ModelShape, *, device_type: str) -> list[str]:
    """Sentences about the number type, most important first; none where it is the usual choice."""
    half = any(shape.dtype_bytes < 4 for shape in (p, q))
    advice: list[str] = []
    for shape in (p, q):
        if shape.dtype == "float16" and shape.stored_dtype == "bfloat16":
            advice.append(
                f"{shape.name} is stored in bfloat16, and float16 ends at 65504: its numbers may "
                "overflow (Gemma's do). Use --dtype bfloat16."
            )
    if device_type == "cpu" and half:
        advice.append(
            "Many CPUs emulate half precision, which is slower than float32. Use --dtype float32 "
            "unless memory is short."
        )
    if device_type == "cuda" and not half:
        advice.append(
            "float32 takes twice the memory of bfloat16 and is many times slower on a GPU. Use "
            "--dtype bfloat16 unless tokens near theta matter."
        )
    if half:
        advice.append(
            "In half precision a token near theta may count as divergent in one run and not in the "
            "next. 'divtok evaluate' says how many such tokens a run has."
        )
    return advice


def memory_problem(
    memory: Memory, p: ModelShape, q: ModelShape, *, device_type: str
) -> Problem | None:
    """Where a job needs more than there is: what to do, the mildest step first."""
    if memory.free is None or memory.fits:
        return None
    usable = USABLE_SHARE * memory.free
    steps: list[str] = []
    if memory.weights_p + memory.weights_q < usable:
        steps.append("take smaller batches (trace.max_batch_tokens)")
    if any(shape.dtype == "float32" for shape in (p, q)):
        slower = "" if device_type == "cuda" else ", though slower on many CPUs"
        steps.append(f"use --dtype bfloat16 (half the memory{slower})")
    if device_type == "cuda":
        steps.append("spread the models over several GPUs (--device-map auto)")
        if memory.weights_p < usable:
            steps.append("put q on another device (trace.q_device)")
    steps.append("use smaller models or a machine with more memory")
    text = "; or ".join(steps)
    return Problem(
        f"The job needs {gigabytes(memory.total)} of memory, and of the {gigabytes(memory.free)} "
        f"that are free {USABLE_SHARE:.0%} can be used.",
        text[0].upper() + text[1:] + ".",
    )


def gigabytes(size: int) -> str:
    """Bytes for people: GB, or MB below a tenth of one."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
