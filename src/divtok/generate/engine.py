"""Trajectories from a transformers model: batched, seeded per key, token ids kept.

`transformers.generate` does the decoding (caches, attention, stopping); what is ours is the keyed
sampler. Knows nothing of where jobs come from and where trajectories go.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from divtok.errors import ModelError, UsageError
from divtok.generate.sampler import KeyedSampler
from divtok.models import LoadedModel
from divtok.problems.encode import prompt_ids
from divtok.records import FinishReason, Problem, Sampling, Trajectory, trajectory_key


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
    tokenizer = loaded.tokenizer
    prompts = [prompt_ids(tokenizer, job.problem.question, protocol=job.protocol) for job in jobs]
    longest = max(len(prompt) for prompt in prompts)
    if longest >= sampling.max_length:
        problem = jobs[[len(prompt) for prompt in prompts].index(longest)].problem
        raise UsageError(
            f"The prompt of {problem.benchmark} problem '{problem.id}' has {longest} tokens, which "
            f"leaves no room within max_length {sampling.max_length}.",
            next_step="Raise sampling.max_length, or leave that problem out.",
        )
    written = _decode(loaded, jobs, prompts, longest)
    return [
        _trajectory(job, prompt, response, loaded, limit=sampling.max_length - len(prompt))
        for job, prompt, response in zip(jobs, prompts, written, strict=True)
    ]


def _decode(
    loaded: LoadedModel, jobs: Sequence[Job], prompts: Sequence[tuple[int, ...]], longest: int
) -> list[list[int]]:
    """Raw continuations of the left-padded prompts, end and padding tokens still in place."""
    import torch
    from transformers import GenerationConfig, LogitsProcessorList

    end_ids = sorted(loaded.end_ids)
    if not end_ids:
        raise ModelError(
            f"The model '{loaded.name}' names no end token, so no response would ever end.",
            next_step="Set eos_token_id in its generation_config.json.",
        )
    pad_id = end_ids[0]
    sampling = jobs[0].sampling
    ids = torch.full((len(prompts), longest), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    sampler = KeyedSampler(
        [job.key for job in jobs], sampling, longest, vocab_size=loaded.tokenizer_width
    )
    shortest = min(len(prompt) for prompt in prompts)
    with torch.inference_mode(), _preset_aside(loaded.model):
        output: Any = loaded.model.generate(
            input_ids=ids.to(loaded.device),
            attention_mask=mask.to(loaded.device),
            generation_config=GenerationConfig(
                do_sample=False,
                max_new_tokens=sampling.max_length - shortest,
                eos_token_id=end_ids,
                pad_token_id=pad_id,
            ),
            logits_processor=LogitsProcessorList([sampler]),
        )
    return output[:, longest:].tolist()


@contextmanager
def _preset_aside(model: Any) -> Generator[None]:
    """Without the checkpoint's own generation preset.

    transformers fills what a generation config leaves open from that preset, so that Qwen2.5's
    repetition penalty, say, would change the logits before they reach the sampler.
    """
    from transformers import GenerationConfig

    preset = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = preset


def _trajectory(
    job: Job, prompt: tuple[int, ...], raw: list[int], loaded: LoadedModel, *, limit: int
) -> Trajectory:
    """Cut the raw continuation at its first end token, or at the length limit."""
    response, finish = _cut(raw[:limit], loaded.end_ids)
    return Trajectory(
        key=job.key,
        problem_id=job.problem.id,
        benchmark=job.problem.benchmark,
        sample=job.sample,
        generator=job.generator,
        prompt_ids=prompt,
        token_ids=tuple(response),
        text=loaded.tokenizer.decode(
            response, skip_special_tokens=True, clean_up_tokenization_spaces=False
        ),
        finish_reason=finish,
        protocol=job.protocol,
        sampling=job.sampling,
    )


def _cut(raw: list[int], end_ids: frozenset[int]) -> tuple[list[int], FinishReason]:
    for position, token in enumerate(raw):
        if token in end_ids:
            return raw[: position + 1], "stop"
    return raw, "length"
