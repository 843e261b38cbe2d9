"""What vLLM's server says about tokens, beside what divtok computes itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from divtok.models.load import load_tokenizer
from divtok.problems.benchmark import load_benchmark
from divtok.protocols.encode import prompt_ids
from divtok.protocols.prompts import messages_for
from divtok.records import Problem
from divtok.trace.pair import Pair, load_pair

GENERATOR, AUXILIARY = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
PROBLEMS = 4
# Largest difference of a log-prob in nats: of two float32 programs, and of a bfloat16 server
# from the exact numbers.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return list(load_benchmark("arith-easy", limit=PROBLEMS))


@pytest.fixture(scope="module")
def pair() -> Pair:
    return load_pair(GENERATOR, AUXILIARY, dtype="float32", p_device="cpu", q_device="cpu")


@pytest.fixture(scope="module")
def answers(servers: Any, problems: list[Problem]) -> list[Any]:
    """Chat completions at temperature 1, with token ids and log-probs."""
    return [
        servers[GENERATOR, "float32"].post(
            "chat/completions",
            messages=messages_for(problem.question),
            temperature=1.0,
            max_tokens=600,
            seed=index,
            return_token_ids=True,
            logprobs=True,
        )
        for index, problem in enumerate(problems)
    ]


def test_the_server_asks_as_divtok_does(answers: list[Any], problems: list[Problem]) -> None:
    tokenizer = load_tokenizer(GENERATOR)
    for answer, problem in zip(answers, problems, strict=True):
        assert tuple(answer["prompt_token_ids"]) == prompt_ids(tokenizer, problem.question)


def test_ids_text_and_logprobs_of_a_chat_completion_belong_together(answers: list[Any]) -> None:
    tokenizer = load_tokenizer(GENERATOR)
    assert {answer["choices"][0]["finish_reason"] for answer in answers} == {"stop"}
    for answer in answers:
        choice = answer["choices"][0]
        ids, told = choice["token_ids"], choice["logprobs"]["content"]
        assert ids[-1] == tokenizer.eos_token_id, "the end token is among the ids"
        assert tokenizer.decode(ids, skip_special_tokens=True) == choice["message"]["content"]
        assert [entry["token"] for entry in told] == [tokenizer.decode([i]) for i in ids]


def test_logprobs_of_sampled_tokens(answers: list[Any], pair: Pair, measure: Any) -> None:
    """They are of the model's own distribution, and stand at the right tokens."""
    worst = 0.0
    for answer in answers:
        choice = answer["choices"][0]
        told = np.array([entry["logprob"] for entry in choice["logprobs"]["content"]])
        worst = max(worst, difference(pair, answer, told))
    measure(f"log-probs of sampled tokens, float32: largest difference {worst:.1e} nats")
    assert worst < TOLERANCE["float32"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_prompt_logprobs(
    servers: Any, answers: list[Any], pair: Pair, measure: Any, dtype: str
) -> None:
    worst, tokens = 0.0, 0
    for answer in answers:
        prompt, response = answer["prompt_token_ids"], answer["choices"][0]["token_ids"]
        places = servers[GENERATOR, dtype].post(
            "completions", prompt=prompt + response, max_tokens=1, temperature=0, prompt_logprobs=5
        )["choices"][0]["prompt_logprobs"]
        assert places[0] is None, "nothing stands before the first token"
        assert len(places) == len(prompt) + len(response)
        spoken = zip(places[len(prompt) :], response, strict=True)
        told = np.array([place[str(token)]["logprob"] for place, token in spoken])
        worst, tokens = max(worst, difference(pair, answer, told)), tokens + len(told)
    measure(f"prompt_logprobs, {dtype}: largest difference {worst:.1e} nats in {tokens} tokens")
    assert worst < TOLERANCE[dtype]


def difference(pair: Pair, answer: Any, told: Any) -> float:
    """Of the server's log-probs [T] of a response from divtok's own, the largest."""
    trace = pair.trace_ids(
        prompt_ids=answer["prompt_token_ids"], token_ids=answer["choices"][0]["token_ids"]
    )
    assert trace.status == "ok"
    assert len(set(np.round(told, 3))) > 5, "equal numbers would fit at any place"
    return float(np.abs(told - trace.logprob_p).max())
