"""Trajectories from a transformers model: batched, seeded per key, token ids kept.

Knows nothing of where jobs come from and where trajectories go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from divtok.errors import UsageError
from divtok.generate.decoding import Ask, Written, decode
from divtok.models.load import LoadedModel
from divtok.protocols.encode import prompt_ids
from divtok.records import Problem, Sampling, Trajectory, trajectory_key


@dataclass(frozen=True, slots=True)
class Job:
    """One trajectory to sample."""

    problem: Problem
    sample: int
    generator: str
    protocol: str
    sampling: Sampling

    @property
    def key(self) -> str:
        return trajectory_key(
            self.problem,
            generator=self.generator,
            protocol=self.protocol,
            sampling=self.sampling,
            sample=self.sample,
        )


def generate_batch(loaded: LoadedModel, jobs: Sequence[Job]) -> list[Trajectory]:
    """One trajectory for each job, in order. All jobs of a batch share their sampling."""
    sampling = jobs[0].sampling
    if any(job.sampling != sampling for job in jobs):
        raise UsageError(
            "All jobs of a batch must share one sampling.", next_step="Split the batch."
        )
    asks = [ask_of(loaded.tokenizer, job) for job in jobs]
    written = decode(loaded, asks, sampling)
    return [trajectory_of(*row) for row in zip(jobs, asks, written, strict=True)]


def ask_of(tokenizer: Any, job: Job) -> Ask:
    """The prompt of a job, with what its max_length leaves for the response."""
    problem, max_length = job.problem, job.sampling.max_length
    prompt = prompt_ids(tokenizer, problem.question, protocol=job.protocol)
    if len(prompt) >= max_length:
        raise UsageError(
            f"The prompt of {problem.benchmark} problem '{problem.id}' has {len(prompt)} tokens, "
            f"which leaves no room within max_length {max_length}.",
            next_step="Raise sampling.max_length, or leave that problem out.",
        )
    return Ask(job.key, prompt, limit=max_length - len(prompt))


def trajectory_of(job: Job, ask: Ask, response: Written) -> Trajectory:
    return Trajectory(
        key=job.key,
        problem_id=job.problem.id,
        benchmark=job.problem.benchmark,
        sample=job.sample,
        generator=job.generator,
        prompt_ids=ask.prompt,
        token_ids=response.token_ids,
        text=response.text,
        finish_reason=response.finish_reason,
        protocol=job.protocol,
        sampling=job.sampling,
    )
