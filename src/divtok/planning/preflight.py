"""Look at a tracing job before it starts: read both models' outlines and time the device.

Gathers what `shapes` and `machine` find into what `feasibility` makes of it. Loads no weights,
except in `measure_pair`, which loads the pair and traces with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from divtok.errors import ModelError
from divtok.models.errors import need_transformers
from divtok.models.load import DType, pick_place
from divtok.planning.feasibility import (
    Batch,
    Feasibility,
    Measured,
    ModelShape,
    Problem,
    default_length,
    dtype_advice,
    length_problem,
    memory_needed,
    memory_problem,
    plan_batch,
    shared_context,
    tokens_per_second,
)
from divtok.planning.machine import free_memory, matmul_rate, measure_tracing, row_seconds
from divtok.planning.shapes import Outline, read_outline
from divtok.trace.head_stage import default_workspace
from divtok.trace.pair import check_vocabularies, load_pair

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Job:
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

    @property
    def models(self) -> tuple[tuple[str, str | None], ...]:
        return (self.p, self.revision_p), (self.q, self.revision_q)


def inspect_pair(job: Job) -> Feasibility:
    """What can be known without the weights; takes about two seconds besides reading."""
    need_transformers()
    where, map_name = pick_place(job.device, job.device_map)
    spread = map_name is not None
    first, second = (
        read_outline(
            ref, revision=revision, dtype=job.dtype, device=job.device, device_map=job.device_map
        )
        for ref, revision in job.models
    )
    p, q = first.shape, second.shape
    length = default_length(shared_context(p, q)) if job.length is None else job.length
    batch = plan_batch(length, max_tokens=job.max_batch_tokens, max_rows=job.max_batch_rows)
    workspace = job.workspace_bytes or default_workspace(where)
    memory = memory_needed(
        p,
        q,
        batch,
        workspace_bytes=workspace,
        free=free_memory(where, spread=spread),
    )
    vocabulary = _vocabulary_problem(first, second)
    problems = (
        vocabulary,
        length_problem(p, q, length),
        memory_problem(memory, p, q, device_type=where.type),
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
        notes=tuple(_notes(first, second)),
        advice=tuple(dtype_advice(p, q, device_type=where.type)),
    )


def measure_pair(job: Job, batch: Batch) -> Measured:
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


def _estimate(
    p: ModelShape, q: ModelShape, length: int, where: torch.device, workspace: int
) -> float | None:
    rates: dict[str, float] = {}
    for dtype in {p.dtype, q.dtype}:
        rate = matmul_rate(where, dtype, hidden_size=p.hidden_size)
        if rate is None:
            return None
        rates[dtype] = rate
    rows = row_seconds(where, p.head_width, q.head_width, workspace_bytes=workspace)
    return None if rows is None else tokens_per_second(p, q, length, rates=rates, row_seconds=rows)


def _vocabulary_problem(first: Any, second: Any) -> Problem | None:
    try:
        check_vocabularies(first.name, first.tokenizer, second.name, second.tokenizer)
    except ModelError as error:
        return Problem(error.what, error.next_step or "")
    return None


def _notes(first: Outline, second: Outline) -> list[str]:
    """Only what a user should know of; nothing for two ordinary models."""
    notes: list[str] = []
    width = min(first.shape.head_width, second.shape.head_width)
    for outline in (first, second):
        shape = outline.shape
        if shape.softcap is not None:
            notes.append(
                f"{shape.name} caps its logits softly at {shape.softcap:g}: done here too."
            )
        if shape.logit_scale != 1.0:
            notes.append(f"{shape.name} scales its logits by {shape.logit_scale:g}: done here too.")
        if shape.quantised:
            notes.append(f"{shape.name} is quantised; memory and speed are those of plain weights.")
    beyond = max(first.tokenizer.get_vocab().values()) + 1 - width
    if beyond > 0:
        notes.append(
            f"{beyond} tokens of {first.name} lie beyond the shared width; a response that holds "
            "one of them is refused."
        )
    if not getattr(first.tokenizer, "chat_template", None):
        notes.append(
            f"{first.name} has no chat template, so divtok cannot write prompts for it; an "
            "instruct or chat version has one."
        )
    return notes
