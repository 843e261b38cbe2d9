"""Jobs, each of which is to become one trajectory, and how a model that is loaded here does them.

Knows nothing of where jobs come from and where trajectories go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from divtok.errors import UsageError
from divtok.generate.decoding import Ask, Written, decode
from divtok.models.load import LoadedModel
from divtok.protocols.encode import prompt_ids
from divtok.records import (
    FinishReason,
    Problem,
    Reason,
    Sampling,
    Trajectory,
    trajectory_key,
)


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

    def trajectory(
        self,
        text: str,
        finish_reason: FinishReason,
        *,
        prompt_ids: tuple[int, ...] = (),
        token_ids: tuple[int, ...] = (),
        reason: str | None = None,
    ) -> Trajectory:
        """What the job has become."""
        return Trajectory(
            key=self.key,
            problem_id=self.problem.id,
            benchmark=self.problem.benchmark,
            sample=self.sample,
            generator=self.generator,
            prompt_ids=prompt_ids,
            token_ids=token_ids,
            text=text,
            finish_reason=finish_reason,
            protocol=self.protocol,
            sampling=self.sampling,
            reason=reason,
        )


def generate_batch(loaded: LoadedModel, jobs: Sequence[Job]) -> list[Trajectory]:
    """One trajectory for each job, in order. All jobs of a batch share their sampling."""
    sampling = jobs[0].sampling
    if any(job.sampling != sampling for job in jobs):
        raise UsageError(
            "All jobs of a batch must share one sampling.", next_step="Split the batch."
        )
    return written_by(
        lambda _, asks: decode(loaded, asks, sampling), tokenizer=loaded.tokenizer, jobs=jobs
    )


def written_by(
    write: Callable[[Sequence[Job], Sequence[Ask]], Sequence[Written]],
    *,
    tokenizer: Any,
    jobs: Sequence[Job],
) -> list[Trajectory]:
    """One trajectory for each job, in order, from what `write` gives for their prompts.

    A prompt that leaves no room for a response is not given to `write`: its row is a failed one.
    """
    asks = [_ask(tokenizer, job) for job in jobs]
    fitting = [row for row, ask in enumerate(asks) if ask.limit > 0]
    written = write([jobs[r] for r in fitting], [asks[r] for r in fitting]) if fitting else []
    responses = dict(zip(fitting, written, strict=True))
    return [
        _trajectory(job, ask, responses.get(row))
        for row, (job, ask) in enumerate(zip(jobs, asks, strict=True))
    ]


def _ask(tokenizer: Any, job: Job) -> Ask:
    """The prompt of a job, with what its max_length leaves for the response."""
    prompt = prompt_ids(tokenizer, job.problem.question, protocol=job.protocol)
    return Ask(job.key, prompt, limit=job.sampling.max_length - len(prompt))


def _trajectory(job: Job, ask: Ask, response: Written | None) -> Trajectory:
    if response is None:
        why = (
            f"the prompt has {len(ask.prompt)} tokens, which leaves no room within max_length "
            f"{job.sampling.max_length}"
        )
        return job.trajectory("", "failed", reason=Reason("too_long", why))
    return job.trajectory(
        response.text,
        response.finish_reason,
        prompt_ids=ask.prompt,
        token_ids=response.token_ids,
    )
