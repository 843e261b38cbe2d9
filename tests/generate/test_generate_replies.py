"""Replies to the further question: sampled like trajectories, the same in any batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from generate_samples import END_TOKEN, QUESTIONS, jobs

from divtok.errors import ModelError, UsageError
from divtok.generate.jobs import Job, generate_batch
from divtok.generate.replies import reply_batch
from divtok.generate.sampler import key_generator
from divtok.protocols.encode import follow_up_ids
from divtok.protocols.prompts import CONFIDENCE_QUESTION
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import Problem, Reply, Sampling, Trajectory

SAMPLED = Sampling(temperature=0.8, top_p=0.95, max_length=105)
GREEDY = Sampling(temperature=0.0, max_length=105)
OPEN = Sampling(temperature=1.0, top_p=1.0, max_length=105)
MAX_TOKENS = 20


def trajectories_of(
    loaded: Any, sampling: Sampling = SAMPLED, count: int = len(QUESTIONS)
) -> list[Trajectory]:
    return generate_batch(loaded, jobs(sampling, count))


def questions_of(trajectories: list[Trajectory]) -> list[str]:
    return [QUESTIONS[int(t.problem_id.removeprefix("p")) % len(QUESTIONS)] for t in trajectories]


def replies_to(
    loaded: Any, trajectories: list[Trajectory], *, max_tokens: int = MAX_TOKENS, **options: Any
) -> list[Reply]:
    questions = questions_of(trajectories)
    return reply_batch(loaded, trajectories, questions, max_tokens=max_tokens, **options)


def in_batches(loaded: Any, trajectories: list[Trajectory], size: int) -> list[Reply]:
    return [
        reply
        for start in range(0, len(trajectories), size)
        for reply in replies_to(loaded, trajectories[start : start + size])
    ]


def conversation(loaded: Any, trajectory: Trajectory, **options: Any) -> list[int]:
    (question,) = questions_of([trajectory])
    return list(
        follow_up_ids(
            loaded.tokenizer,
            question,
            prompt=trajectory.prompt_ids,
            response=trajectory.token_ids,
            end_ids=loaded.end_ids,
            **options,
        )
    )


def naive_logits(loaded: Any, ids: list[int]) -> Any:
    """Next-token logits of one unpadded sequence, without a cache; only of ids that are tokens."""
    import torch

    with torch.no_grad():
        logits = loaded.model(torch.tensor([ids])).logits[0, -1].double()
    return logits[: len(loaded.tokenizer)]


def greedy_reply(
    loaded: Any, ids: list[int], *, limit: int, penalty: float = 0.0
) -> tuple[int, ...]:
    said: list[int] = []
    while len(said) < limit and END_TOKEN not in said:
        logits = naive_logits(loaded, [*ids, *said])
        logits[sorted(set(said))] -= penalty
        said.append(int(logits.argmax()))
    return tuple(said)


@pytest.mark.parametrize("sampling", [SAMPLED, replace(SAMPLED, presence_penalty=1.0, top_k=20)])
def test_replies_do_not_depend_on_the_batch(loaded: Any, sampling: Sampling) -> None:
    trajectories = trajectories_of(loaded, sampling, 15)
    assert {t.finish_reason for t in trajectories} == {"stop", "length"}, "both ends must be tried"
    alone = in_batches(loaded, trajectories, 1)
    assert in_batches(loaded, trajectories, 2) == alone
    assert in_batches(loaded, trajectories, 15) == alone
    assert in_batches(loaded, trajectories[::-1], 4) == alone[::-1]
    assert {reply.finish_reason for reply in alone} == {"stop", "length"}


def test_greedy_replies_continue_the_conversation(loaded: Any) -> None:
    trajectories = trajectories_of(loaded, GREEDY)
    for trajectory, reply in zip(trajectories, replies_to(loaded, trajectories), strict=True):
        ids = conversation(loaded, trajectory)
        assert reply.token_ids == greedy_reply(loaded, ids, limit=MAX_TOKENS)


def test_the_presence_penalty_counts_what_the_reply_has_written(loaded: Any) -> None:
    trajectories = trajectories_of(loaded, replace(GREEDY, presence_penalty=4.0))
    replies = replies_to(loaded, trajectories)
    assert replies != replies_to(loaded, [replace(t, sampling=GREEDY) for t in trajectories])
    for trajectory, reply in zip(trajectories, replies, strict=True):
        ids = conversation(loaded, trajectory)
        assert reply.token_ids == greedy_reply(loaded, ids, limit=MAX_TOKENS, penalty=4.0)


def test_a_reply_draws_from_a_stream_of_its_own(loaded: Any) -> None:
    """At temperature 1 without cuts, each token is where one uniform number falls."""
    trajectories = trajectories_of(loaded, OPEN)
    for trajectory, reply in zip(trajectories, replies_to(loaded, trajectories), strict=True):
        ids, stream = conversation(loaded, trajectory), key_generator(f"{trajectory.key}/reply")
        for token in reply.token_ids:
            cumulative = naive_logits(loaded, ids).softmax(dim=-1).cumsum(dim=-1)
            assert token == int((cumulative <= stream.random()).sum())
            ids.append(token)


def test_replies_to_samples_of_one_response_differ(loaded: Any) -> None:
    (first,) = trajectories_of(loaded, count=1)
    twins = [replace(first, key=f"key-{i}") for i in range(4)]
    assert len({reply.token_ids for reply in replies_to(loaded, twins)}) == 4


def test_the_trajectorys_max_length_plays_no_part(loaded: Any) -> None:
    trajectories = trajectories_of(loaded)
    shorter = [replace(t, sampling=replace(SAMPLED, max_length=1)) for t in trajectories]
    assert replies_to(loaded, shorter) == replies_to(loaded, trajectories)


def test_what_a_reply_records(loaded: Any) -> None:
    trajectories = trajectories_of(loaded, count=15)
    for trajectory, reply in zip(trajectories, replies_to(loaded, trajectories), strict=True):
        assert (reply.key, reply.model, reply.reason) == (trajectory.key, loaded.name, None)
        ended = END_TOKEN in reply.token_ids
        assert reply.finish_reason == ("stop" if ended else "length")
        content = reply.token_ids[:-1] if ended else reply.token_ids
        assert END_TOKEN not in content
        assert ended or len(content) == MAX_TOKENS
        assert reply.text == loaded.tokenizer.decode(content, skip_special_tokens=True)


def test_fewer_tokens_are_a_shorter_piece_of_the_same_reply(loaded: Any) -> None:
    trajectories = trajectories_of(loaded)
    for limit in (1, 7):
        pairs = zip(
            replies_to(loaded, trajectories),
            replies_to(loaded, trajectories, max_tokens=limit),
            strict=True,
        )
        for longer, shorter in pairs:
            assert shorter.token_ids == longer.token_ids[:limit]
            assert shorter.finish_reason == ("stop" if END_TOKEN in shorter.token_ids else "length")


def test_another_question_can_be_asked(loaded: Any) -> None:
    trajectories = trajectories_of(loaded, GREEDY, 2)
    replies = replies_to(loaded, trajectories, follow_up="9?")
    for trajectory, reply in zip(trajectories, replies, strict=True):
        ids = conversation(loaded, trajectory, follow_up="9?")
        assert reply.token_ids == greedy_reply(loaded, ids, limit=MAX_TOKENS)
    assert replies != replies_to(loaded, trajectories, follow_up=CONFIDENCE_QUESTION)


def test_a_conversation_without_room_gets_a_reason_and_the_others_their_reply(loaded: Any) -> None:
    trajectories = trajectories_of(loaded)
    free = replies_to(loaded, trajectories)
    lengths = [len(conversation(loaded, trajectory)) for trajectory in trajectories]
    loaded.model.config.max_position_embeddings = max(lengths)
    replies = replies_to(loaded, trajectories)
    full = [row for row, length in enumerate(lengths) if length == max(lengths)]
    assert 0 < len(full) < len(lengths)
    for row, reply in enumerate(replies):
        if row not in full:
            assert reply.reason is None
            assert reply.token_ids == free[row].token_ids[: max(lengths) - lengths[row]]
            continue
        assert (reply.token_ids, reply.text, reply.finish_reason) == ((), "", "length")
        assert reply.key == trajectories[row].key
        assert reply.reason is not None
        assert f"has {max(lengths)} tokens" in reply.reason


def test_the_context_bounds_a_reply(loaded: Any) -> None:
    (trajectory,) = trajectories_of(loaded, GREEDY, 1)
    (free,) = replies_to(loaded, [trajectory])
    assert len(free.token_ids) > 3
    length = len(conversation(loaded, trajectory))
    loaded.model.config.max_position_embeddings = length + 3
    (bound,) = replies_to(loaded, [trajectory])
    assert bound.token_ids == free.token_ids[:3]
    assert (bound.finish_reason, bound.reason) == ("length", None)


def test_where_no_conversation_has_room_nothing_is_decoded(loaded: Any) -> None:
    trajectories = trajectories_of(loaded)
    loaded.model.config.max_position_embeddings = 10
    loaded.model.generate = loaded.model.forward = None
    replies = replies_to(loaded, trajectories)
    assert [reply.key for reply in replies] == [trajectory.key for trajectory in trajectories]
    assert all(reply.reason for reply in replies)


def test_a_model_without_a_context_limit_is_asked(loaded: Any) -> None:
    import torch
    from transformers import BloomConfig, BloomForCausalLM

    torch.manual_seed(0)
    config = BloomConfig(vocab_size=400, hidden_size=16, n_layer=1, n_head=2, eos_token_id=2)
    unlimited = replace(loaded, model=BloomForCausalLM(config).eval())
    trajectories = trajectories_of(unlimited, GREEDY, 2)
    for trajectory, reply in zip(trajectories, replies_to(unlimited, trajectories), strict=True):
        ids = conversation(unlimited, trajectory)
        assert reply.token_ids == greedy_reply(unlimited, ids, limit=MAX_TOKENS)


def test_no_trajectories_no_replies(loaded: Any) -> None:
    assert reply_batch(loaded, [], []) == []


def test_a_batch_has_one_sampling(loaded: Any) -> None:
    first, second = trajectories_of(loaded, count=2)
    with pytest.raises(UsageError, match="share one sampling"):
        replies_to(loaded, [first, replace(second, sampling=GREEDY)])


def test_a_reply_has_at_least_one_token(loaded: Any) -> None:
    with pytest.raises(UsageError, match="max_tokens 1 or more"):
        replies_to(loaded, trajectories_of(loaded, count=1), max_tokens=0)


def test_questions_of_other_problems_are_refused(loaded: Any) -> None:
    trajectories = trajectories_of(loaded, count=2)
    with pytest.raises(ModelError, match="prompt ids are not what"):
        reply_batch(loaded, trajectories, questions_of(trajectories)[::-1])
    with pytest.raises(ValueError, match="shorter"):
        reply_batch(loaded, trajectories, questions_of(trajectories)[:1])


@pytest.mark.parametrize("protocol", PROTOCOLS.names())
def test_a_packaged_model_can_be_asked(protocol: str) -> None:
    from divtok.models.load import load_model

    loaded = load_model("divtok/tiny-0.5m", device="cpu")
    question = "Add 1 and 2, then double it."
    sampling = Sampling(max_length=400)
    todo = [
        Job(Problem("p", "b", question, "6"), sample, loaded.name, protocol, sampling)
        for sample in range(3)
    ]
    trajectories = generate_batch(loaded, todo)
    together = reply_batch(loaded, trajectories, [question] * 3, max_tokens=40)
    alone = [reply_batch(loaded, [t], [question], max_tokens=40)[0] for t in trajectories]
    assert together == alone
    for trajectory, reply in zip(trajectories, together, strict=True):
        assert (reply.key, reply.model) == (trajectory.key, trajectory.generator)
        assert 0 < len(reply.token_ids) <= 40
        assert reply.reason is None
