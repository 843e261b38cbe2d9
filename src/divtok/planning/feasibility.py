"""Whether a pair can be traced on this machine, how fast, and what to do where it cannot.

Reads both models' outlines and times the device; what that means is worked out in `memory` and
`speed`. Loads no weights, except in `measure_pair`, which loads the pair and traces with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from divtok.errors import ModelError
from divtok.models.errors import need_transformers
from divtok.models.load import DType, model_digest, pick_place
from divtok.models.weights import broken_tensor, same_weights
from divtok.planning.amounts import gigabytes
from divtok.planning.machine import (
    Measured,
    free_memory,
    matmul_rate,
    measure_tracing,
    row_seconds,
)
from divtok.planning.memory import USABLE_SHARE, Batch, Memory, memory_needed, plan_batch
from divtok.planning.model_shapes import ModelShape, Outline, read_outline
from divtok.planning.speed import tokens_per_second
from divtok.trace.head_stage import default_workspace
from divtok.trace.pair import check_vocabularies, load_pair
from divtok.trace.pair_warnings import same_weights_text, smaller_text

if TYPE_CHECKING:
    import torch

PROMPT_TOKENS = 256  # room for the prompt that a default length leaves
DEFAULT_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class TracingJob:
    """A pair to trace with, as for `divtok run`. `length` None: as long as the models can read."""

    p: str
    q: str
    max_batch_tokens: int
    max_batch_rows: int
    workspace_bytes: int | None = None  # left out: the device's default
    revision_p: str | None = None
    revision_q: str | None = None
    dtype: DType = "auto"
    device: str | None = None
    device_map: str | None = None
    length: int | None = None  # tokens of the longest response
    tokens: int | None = None  # of all trajectories together


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a job cannot be done, and what to do about it."""

    what: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Feasibility:
    """All that is known of a job before it starts. It can be done where there are no problems."""

    p: ModelShape
    q: ModelShape
    device: str
    same_tokens: bool  # whether an id is the same token in both
    length: int
    batch: Batch
    memory: Memory
    estimated: float | None  # tokens a second; None where the device could not be timed
    tokens: int | None
    problems: tuple[Obstacle, ...]
    notes: tuple[str, ...]  # what is special about the models
    advice: tuple[str, ...]  # about the dtype
    measured: Measured | None = None

    @property
    def shared_width(self) -> int:
        """How many tokens the distributions of both models are cut to."""
        return min(self.p.head_width, self.q.head_width)

    @property
    def context_length(self) -> int | None:
        return shared_context(self.p, self.q)

    @property
    def hours(self) -> float | None:
        """For all tokens of the job, as measured or else as estimated."""
        speed = self.estimated if self.measured is None else self.measured.tokens_per_second
        return None if self.tokens is None or speed is None else self.tokens / speed / 3600


def inspect_pair(job: TracingJob) -> Feasibility:
    """What can be known without the weights; takes about two seconds besides reading."""
    need_transformers()
    where, map_name = pick_place(job.device, job.device_map)
    spread = map_name is not None
    first, second = (
        read_outline(
            ref, revision=revision, dtype=job.dtype, device=job.device, device_map=job.device_map
        )
        for ref, revision in ((job.p, job.revision_p), (job.q, job.revision_q))
    )
    p, q = first.shape, second.shape
    length = default_length(shared_context(p, q)) if job.length is None else job.length
    batch = plan_batch(length, max_tokens=job.max_batch_tokens, max_rows=job.max_batch_rows)
    workspace = job.workspace_bytes or default_workspace(where)
    free = free_memory(where, spread=spread)
    memory = memory_needed(p, q, batch, workspace_bytes=workspace, free=free)
    vocabulary = _vocabulary_obstacle(first, second)
    problems = (
        vocabulary,
        length_obstacle(p, q, length),
        memory_obstacle(memory, p, q, device_type=where.type),
    )
    return Feasibility(
        p=p,
        q=q,
        device=str(where) if not spread else f"all {where.type} devices",
        same_tokens=vocabulary is None,
        length=length,
        batch=batch,
        memory=memory,
        estimated=_estimate(p, q, length, where, workspace),
        tokens=job.tokens,
        problems=tuple(problem for problem in problems if problem is not None),
        notes=(*_same(first, second, job), *model_notes(first, second)),
        advice=tuple(dtype_advice(p, q, device_type=where.type)),
    )


def _same(first: Outline, second: Outline, job: TracingJob) -> list[str]:
    if not same_model(first, second, job.revision_p, job.revision_q):
        return []
    return [same_weights_text(first.shape.name, second.shape.name)]


def measured(job: TracingJob, found: Feasibility) -> Feasibility:
    """With what loading the pair and tracing random tokens shows: speed, and what is wrong."""
    seen = measure_pair(job, found.batch)
    # The same weights never diverge, which is among the notes.
    same = same_weights_text(job.p, job.q) in found.notes
    more = () if same else tuple(warning.text for warning in seen.warnings)
    problems = () if seen.broken is None else (_broken(job, seen.broken),)
    return replace(
        found,
        measured=seen,
        notes=(*found.notes, *more),
        problems=(*found.problems, *problems),
    )


def _broken(job: TracingJob, why: str) -> Obstacle:
    """A model whose logits are no numbers: where, and which of its weights are none either."""
    for ref, revision in ((job.p, job.revision_p), (job.q, job.revision_q)):
        tensor = broken_tensor(ref, revision)
        if tensor is not None:
            return Obstacle(
                f"On random tokens {why}. The weights of '{ref}' hold NaN or an infinity in "
                f"{tensor}.",
                "Fetch that model again, or take another one.",
            )
    return Obstacle(
        f"On random tokens {why}, though all stored weights are finite.",
        "Numbers grow too large for the dtype: try --dtype float32 or bfloat16.",
    )


def measure_pair(job: TracingJob, batch: Batch) -> Measured:
    """Load the pair, which checks that each model can be taken apart, and trace random tokens."""
    pair = load_pair(
        job.p,
        job.q,
        p_revision=job.revision_p,
        q_revision=job.revision_q,
        dtype=job.dtype,
        p_device=job.device,
        q_device=job.device,
        device_map=job.device_map,
    )
    workspace = job.workspace_bytes or default_workspace(pair.p.device)
    return measure_tracing(pair, batch, workspace_bytes=workspace)


def default_length(context_length: int | None) -> int:
    """Response tokens to plan with: 4096, or what the models can read besides a prompt."""
    if context_length is None:
        return DEFAULT_LENGTH
    return min(DEFAULT_LENGTH, context_length - min(PROMPT_TOKENS, context_length // 2))


def shared_context(p: ModelShape, q: ModelShape) -> int | None:
    """What both models can read, prompt and response together; None without a limit."""
    return min((s.context_length for s in (p, q) if s.context_length is not None), default=None)


def length_obstacle(p: ModelShape, q: ModelShape, length: int) -> Obstacle | None:
    """A response needs room in both models, and one prompt token before it."""
    for shape in (p, q):
        if shape.context_length is not None and length >= shape.context_length:
            return Obstacle(
                f"A response of {length:,} tokens is too long: {shape.name} reads "
                f"{shape.context_length:,}, prompt included.",
                "Give a smaller --length, or use models that read more.",
            )
    return None


def memory_obstacle(
    memory: Memory, p: ModelShape, q: ModelShape, *, device_type: str
) -> Obstacle | None:
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
    return Obstacle(
        f"The job needs {gigabytes(memory.total)} of memory. {gigabytes(memory.free)} are free, "
        f"of which {USABLE_SHARE:.0%} can be used.",
        text[0].upper() + text[1:] + ".",
    )


def dtype_advice(p: ModelShape, q: ModelShape, *, device_type: str) -> list[str]:
    """Sentences about the dtype, most important first; none where it is the usual choice."""
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


def _estimate(
    p: ModelShape, q: ModelShape, length: int, where: torch.device, workspace: int
) -> float | None:
    import torch

    try:
        rates = {
            dtype: matmul_rate(where, dtype, hidden_size=p.hidden_size)
            for dtype in {p.dtype, q.dtype}
        }
        rows = row_seconds(where, p.head_width, q.head_width, workspace_bytes=workspace)
    except torch.OutOfMemoryError:
        return None
    return tokens_per_second(p, q, length, rates=rates, row_seconds=rows)


def _vocabulary_obstacle(first: Outline, second: Outline) -> Obstacle | None:
    try:
        check_vocabularies(first.shape.name, first.tokenizer, second.shape.name, second.tokenizer)
    except ModelError as error:
        return Obstacle(error.what, error.next_step or "")
    return None


def same_model(p: Outline, q: Outline, p_revision: str | None, q_revision: str | None) -> bool:
    """Whether two names stand for the very same weights: of the hub by commit, else by content."""
    if p.shape.parameters != q.shape.parameters:
        return False
    names, revisions = (p.shape.name, q.shape.name), (p_revision, q_revision)
    digests = [
        model_digest(name, revision=revision)
        for name, revision in zip(names, revisions, strict=True)
    ]
    return digests[0] == digests[1] or same_weights(
        *names, p_revision=p_revision, q_revision=q_revision
    )


def model_notes(first: Outline, second: Outline) -> list[str]:
    """Only what a user should know; nothing for two ordinary models."""
    p, q, notes = first.shape, second.shape, list[str]()
    if p.parameters < q.parameters:
        notes.append(smaller_text(p.name, p.parameters, q.name, q.parameters))
    width = min(p.head_width, q.head_width)
    for shape in (p, q):
        name = shape.name
        if shape.softcap is not None:
            notes.append(f"{name} caps its logits softly at {shape.softcap:g}, and so does divtok.")
        if shape.logit_scale != 1.0:
            notes.append(f"{name} scales its logits by {shape.logit_scale:g}, and so does divtok.")
        if shape.quantised:
            notes.append(f"{name} is quantised; memory and speed are those of plain weights.")
    beyond = max(first.tokenizer.get_vocab().values()) + 1 - width
    if beyond > 0:
        notes.append(
            f"{beyond} tokens of {p.name} lie beyond the shared width; a response that "
            "holds one of them is refused."
        )
    if not getattr(first.tokenizer, "chat_template", None):
        notes.append(
            f"{p.name} has no chat template, so divtok cannot write prompts for it; an "
            "instruct or chat version has one."
        )
    return notes
