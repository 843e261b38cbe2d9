"""Jobs, each of which is to become one trajectory, and how a model that is loaded here does them.

Knows nothing of where jobs come from and where trajectories go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from divtok.errors import UsageError
from divtok.generate.asks import Ask, Written
from divtok.models.load import LoadedModel
from divtok.protocols.encode import prompt_ids
from divtok.records import FinishReason, Problem, Reason, Sampling, Trajectory, trajectory_key

Write: TypeAlias = Callable[[Sequence[Ask]], Sequence[Written]]


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
    from divtok.generate.decoding import decode  # a config knows jobs, and loads no code of models

    sampling = shared_sampling(jobs)
    return written_by(
        lambda asks: decode(loaded, asks, sampling),
        loaded.tokenizer,
        jobs,
        context_length=loaded.context_length,
    )


def shared_sampling(jobs: Sequence[Job]) -> Sampling:
    """The sampling of a batch; an error where its jobs differ."""
    sampling = jobs[0].sampling
    if any(job.sampling != sampling for job in jobs):
        raise UsageError(
            "All jobs of a batch must share one sampling.", next_step="Split the batch."
        )
    return sampling


def written_by(
    write: Write, tokenizer: Any, jobs: Sequence[Job], *, context_length: int | None = None
) -> list[Trajectory]:
    """One trajectory for each job, in order, from what `write` gives for their prompts.

    A response ends where max_length or the model's context does. Where they leave no room for one
    the row is a failed one.
    """
    asks: list[Ask] = []
    for job in jobs:
        prompt = prompt_ids(tokenizer, job.problem.question, protocol=job.protocol)
        most = min(job.sampling.max_length, context_length or job.sampling.max_length)
        asks.append(Ask(job.key, prompt, limit=most - len(prompt)))
    return [
        _trajectory(job, ask, response)
        for job, ask, response in zip(jobs, asks, within_limits(asks, write), strict=True)
    ]


def within_limits(asks: Sequence[Ask], write: Write) -> list[Written | None]:
    """What `write` gives for each prompt; None for one that has no room, which it does not get."""
    fitting = [ask for ask in asks if ask.limit > 0]
    written = iter(write(fitting) if fitting else ())
    return [next(written) if ask.limit > 0 else None for ask in asks]


def _trajectory(job: Job, ask: Ask, response: Written | None) -> Trajectory:
    if response is None:
        most, length = len(ask.prompt) + ask.limit, job.sampling.max_length
        within = f"max_length {length}" if most == length else f"the model's context of {most}"
        why = f"the prompt has {len(ask.prompt)} tokens, which leaves no room within {within}"
        return job.trajectory("", "failed", reason=Reason("too_long", why))
    return job.trajectory(
        response.text, response.finish_reason, prompt_ids=ask.prompt, token_ids=response.token_ids
    )
