"""Trajectories from a real (small, random) model: the same in any batch, cut where they must be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from generate_samples import END_TOKEN, QUESTIONS, jobs

from divtok.errors import ModelError, UsageError
from divtok.generate.jobs import Job, generate_batch
from divtok.generate.sampler import key_generator
from divtok.protocols.encode import prompt_ids
from divtok.records import Reason, Sampling, Trajectory, trajectory_key

SAMPLED = Sampling(temperature=0.8, top_p=0.95, max_length=105)
GREEDY = Sampling(temperature=0.0, max_length=200)


def in_batches(loaded: Any, todo: list[Job], size: int) -> list[Trajectory]:
    return [
        trajectory
        for start in range(0, len(todo), size)
        for trajectory in generate_batch(loaded, todo[start : start + size])
    ]


def naive_logits(loaded: Any, ids: list[int]) -> Any:
    """Next-token logits of one unpadded sequence, without a cache; only of ids that are tokens."""
    import torch

    with torch.no_grad():
        logits = loaded.model(torch.tensor([ids])).logits[0, -1].double()
    return logits[: len(loaded.tokenizer)]


def test_prompts_differ_in_length(loaded: Any) -> None:
    lengths = {len(prompt_ids(loaded.tokenizer, question)) for question in QUESTIONS}
    assert len(lengths) == len(QUESTIONS)


@pytest.mark.parametrize("sampling", [SAMPLED, replace(SAMPLED, presence_penalty=1.0, top_k=20)])
def test_trajectories_do_not_depend_on_the_batch(loaded: Any, sampling: Sampling) -> None:
    todo = jobs(sampling, 15)
    alone = in_batches(loaded, todo, 1)
    assert in_batches(loaded, todo, 2) == alone
    assert in_batches(loaded, todo, 5) == alone
    assert in_batches(loaded, todo[::-1], 4) == alone[::-1]
    assert {t.finish_reason for t in alone} == {"stop", "length"}, "both ends must be tried"


def test_greedy_tokens_are_the_most_likely_ones(loaded: Any) -> None:
    for trajectory in generate_batch(loaded, jobs(GREEDY)):
        ids = list(trajectory.prompt_ids)
        for token in trajectory.token_ids:
            assert token == int(naive_logits(loaded, ids).argmax())
            ids.append(token)


def test_sampled_tokens_invert_the_cumulative_distribution(loaded: Any) -> None:
    """At temperature 1 without cuts, each token is where one uniform number falls."""
    sampling = Sampling(temperature=1.0, top_p=1.0, max_length=110)
    for trajectory in generate_batch(loaded, jobs(sampling)):
        ids, stream = list(trajectory.prompt_ids), key_generator(trajectory.key)
        for token in trajectory.token_ids:
            cumulative = naive_logits(loaded, ids).softmax(dim=-1).cumsum(dim=-1)
            assert token == int((cumulative <= stream.random()).sum())
            ids.append(token)


def test_samples_of_one_problem_differ(loaded: Any) -> None:
    job = jobs(SAMPLED, 1)[0]
    written = generate_batch(loaded, [replace(job, sample=i) for i in range(4)])
    assert len({t.token_ids for t in written}) == 4


def test_a_stopped_trajectory_ends_with_its_only_end_token(loaded: Any) -> None:
    stopped = [t for t in generate_batch(loaded, jobs(SAMPLED, 15)) if t.finish_reason == "stop"]
    assert stopped
    for trajectory in stopped:
        assert trajectory.token_ids.index(END_TOKEN) == len(trajectory.token_ids) - 1
        assert len(trajectory.prompt_ids) + len(trajectory.token_ids) <= SAMPLED.max_length
        assert not trajectory.truncated


def test_a_truncated_trajectory_fills_max_length_exactly(loaded: Any) -> None:
    cut = [t for t in generate_batch(loaded, jobs(SAMPLED, 15)) if t.finish_reason == "length"]
    assert cut
    for trajectory in cut:
        assert END_TOKEN not in trajectory.token_ids
        assert len(trajectory.prompt_ids) + len(trajectory.token_ids) == SAMPLED.max_length
        assert trajectory.truncated


def test_an_end_token_at_the_very_limit_still_stops(loaded: Any) -> None:
    """Greedy tokens do not depend on max_length, so the limit can be put right at their end."""
    todo = jobs(GREEDY)
    for index, free in enumerate(generate_batch(loaded, todo)):
        assert free.finish_reason == "stop"
        length = len(free.prompt_ids) + len(free.token_ids)
        for limit, finish in ((length, "stop"), (length - 1, "length")):
            job = replace(todo[index], sampling=replace(GREEDY, max_length=limit))
            (bound,) = generate_batch(loaded, [job])
            assert bound.finish_reason == finish
            assert bound.token_ids == free.token_ids[: limit - len(free.prompt_ids)]


def test_what_a_trajectory_records(loaded: Any) -> None:
    todo = jobs(SAMPLED)
    for job, trajectory in zip(todo, generate_batch(loaded, todo), strict=True):
        assert trajectory.key == job.key
        assert trajectory.key == trajectory_key(
            job.problem, generator="gen", protocol="cot", sampling=SAMPLED, sample=job.sample
        )
        assert trajectory.prompt_ids == prompt_ids(loaded.tokenizer, job.problem.question)
        recorded = (trajectory.problem_id, trajectory.benchmark, trajectory.sample)
        assert recorded == (job.problem.id, "bench", job.sample)
        assert (trajectory.generator, trajectory.protocol) == ("gen", "cot")
        assert trajectory.sampling == SAMPLED
        assert not trajectory.retokenized


def test_the_text_is_that_of_the_tokens_without_the_end(loaded: Any) -> None:
    for trajectory in generate_batch(loaded, jobs(SAMPLED)):
        content = [token for token in trajectory.token_ids if token != END_TOKEN]
        assert trajectory.text == loaded.tokenizer.decode(content, skip_special_tokens=True)
        assert "<|im_end|>" not in trajectory.text


def test_the_checkpoints_own_generation_preset_is_left_aside(loaded: Any) -> None:
    from transformers import GenerationConfig

    plain = generate_batch(loaded, jobs(SAMPLED))
    preset = GenerationConfig(
        eos_token_id=END_TOKEN,
        repetition_penalty=1.5,
        no_repeat_ngram_size=1,
        min_new_tokens=60,
        suppress_tokens=list(range(3, 60)),
    )
    loaded.model.generation_config = preset
    assert generate_batch(loaded, jobs(SAMPLED)) == plain
    assert loaded.model.generation_config is preset


def test_every_end_token_of_the_model_stops_it(loaded: Any) -> None:
    (free,) = generate_batch(loaded, jobs(GREEDY, 1))
    other = free.token_ids[3]
    loaded.model.generation_config.eos_token_id = [END_TOKEN, other]
    (stopped,) = generate_batch(loaded, jobs(GREEDY, 1))
    assert stopped.token_ids == free.token_ids[: free.token_ids.index(other) + 1]
    assert stopped.finish_reason == "stop"


def test_a_model_without_an_end_token_is_refused(loaded: Any) -> None:
    loaded.model.generation_config.eos_token_id = None
    loaded.model.config.eos_token_id = None
    loaded.tokenizer.eos_token = None
    with pytest.raises(ModelError, match=r"no end token.*eos_token_id"):
        generate_batch(loaded, jobs(SAMPLED, 1))


def test_a_prompt_without_room_for_a_response_is_a_failed_row(loaded: Any) -> None:
    todo = jobs(SAMPLED)
    lengths = [len(prompt_ids(loaded.tokenizer, job.problem.question)) for job in todo]
    longest = max(lengths)
    short = [replace(job, sampling=replace(SAMPLED, max_length=longest)) for job in todo]
    made = generate_batch(loaded, short)
    assert [t.key for t in made] == [job.key for job in short]
    assert [t.failed for t in made] == [length == longest for length in lengths]
    (failed,) = (t for t in made if t.failed)
    assert (failed.text, failed.token_ids, failed.prompt_ids) == ("", (), ())
    assert isinstance(failed.reason, Reason)
    assert failed.reason.kind == "too_long"
    why = f"the prompt has {longest} tokens, which leaves no room within max_length {longest}"
    assert failed.reason == why
    # The others are what they would be without it.
    fitting = [job for job, length in zip(short, lengths, strict=True) if length < longest]
    assert [t for t in made if not t.failed] == generate_batch(loaded, fitting)
    fits = generate_batch(loaded, jobs(replace(SAMPLED, max_length=longest + 1)))
    assert [len(t.token_ids) for t in fits if len(t.prompt_ids) == longest] == [1]


def test_where_no_prompt_leaves_room_nothing_is_decoded(loaded: Any) -> None:
    loaded.model.generation_config.eos_token_id = None
    loaded.model.config.eos_token_id = None
    loaded.tokenizer.eos_token = None  # decoding would be refused
    made = generate_batch(loaded, jobs(replace(SAMPLED, max_length=1)))
    assert [t.failed for t in made] == [True] * len(QUESTIONS)


def test_a_batch_has_one_sampling(loaded: Any) -> None:
    first, second = jobs(SAMPLED, 2)
    with pytest.raises(UsageError, match="share one sampling"):
        generate_batch(loaded, [first, replace(second, sampling=GREEDY)])


def test_a_model_that_overflows_is_named_as_the_fault(loaded: Any) -> None:
    import torch

    with torch.no_grad():
        loaded.model.lm_head.weight[5] = float("nan")
    with pytest.raises(ModelError, match="not numbers"):
        generate_batch(loaded, jobs(SAMPLED, 2))
