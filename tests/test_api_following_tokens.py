"""`follow` with an auxiliary: a generator behind a real server, its log-probs, one reader here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from model_server import ModelServer
from scripted_server import ScriptedServer, Step, delta, events, refuse

import divtok
from divtok.api.asking import Watch
from divtok.api.following import Following
from divtok.api.following_tokens import FollowingTokens, written_pair
from divtok.decide.policy import QUANTILES, HowScored, Policy
from divtok.errors import NothingScoredError, ServerError, UsageError
from divtok.generate.chat_stream import Part
from divtok.protocols.encode import prompt_ids
from divtok.records import FloatArray, Trace
from divtok.trace.pair import Pair
from divtok.trace.topk.server_pair import ServerPair
from divtok.trace.topk.written_pair import WrittenPair

P, Q = "divtok/tiny-1.6m", "divtok/tiny-0.3m"
WIDTH = 896  # of p's distributions; q's are narrower
QUESTION = "Ada has 7365 eggs. Ada buys 3078 eggs and gives 3 times 77 away. How many are left?"
THETA = 0.05
HOT: dict[str, Any] = {"temperature": 1.0, "seed": 3, "theta": THETA}


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair(P, Q, device="cpu")


@pytest.fixture(scope="module")
def server(pair: Pair) -> Iterator[ModelServer]:
    assert pair.p.loaded is not None
    with ModelServer(pair.p.loaded) as server:
        yield server


def followed(server: ModelServer, pair: Pair, **given: Any) -> list[divtok.StreamEvent]:
    there: dict[str, Any] = {"server": server.base_url, "model": P, "auxiliary": pair.q}
    return list(divtok.follow(QUESTION, **{**HOT, **there, **given}))


def exact(pair: Pair, found: list[divtok.StreamEvent]) -> Trace:
    """What both models' weights give for these tokens."""
    prompt = prompt_ids(pair.p.tokenizer, QUESTION)
    return pair.trace_ids(prompt_ids=prompt, token_ids=[event.token_id for event in found])


def trace_of(found: list[divtok.StreamEvent]) -> Trace:
    assert found[-1].result is not None
    return found[-1].result.trace


def spread(trace: Trace) -> FloatArray:
    assert trace.jsd_low_bits is not None
    assert trace.jsd_high_bits is not None
    return trace.jsd_high_bits - trace.jsd_low_bits


def test_with_the_whole_vocabulary_it_is_the_trace_of_both_models(
    pair: Pair, server: ModelServer
) -> None:
    found = followed(server, pair, top_logprobs=WIDTH)
    trace, true = trace_of(found), exact(pair, found)
    assert len(trace) > 20
    assert trace.exact
    assert not trace.retokenized
    np.testing.assert_allclose(trace.jsd_bits, true.jsd_bits, atol=1e-5)
    for name in ("logprob_p", "logprob_q", "entropy_p", "entropy_q"):
        np.testing.assert_allclose(getattr(trace, name), getattr(true, name), atol=1e-4)
    assert (trace.answer_start, trace.turn_end) == (true.answer_start, true.turn_end)
    last = found[-1]
    assert (last.ending, last.bounds, last.count_bounds) == ("stop", None, None)
    assert last.count == np.count_nonzero(true.reasoning() & (true.jsd_bits > THETA))
    body = server.asked[-1][1]
    assert (body["logprobs"], body["top_logprobs"], body["stream"]) == (True, WIDTH, True)
    assert body["return_token_ids"]
    assert body["return_tokens_as_token_ids"]


@pytest.mark.parametrize("k", [1, 5, 20])
def test_the_true_values_are_within_the_bounds(pair: Pair, server: ModelServer, k: int) -> None:
    for seed in range(3):
        found = followed(server, pair, top_logprobs=k, seed=seed, estimator=["dtc_lin", "dtc_prod"])
        trace, true = trace_of(found), exact(pair, found)
        assert trace.jsd_low_bits is not None
        assert trace.jsd_high_bits is not None
        assert (trace.jsd_low_bits <= true.jsd_bits + 1e-6).all()
        assert (trace.jsd_high_bits >= true.jsd_bits - 1e-6).all()
        np.testing.assert_allclose(trace.logprob_q, true.logprob_q, atol=1e-4)
        last, mask = found[-1], true.reasoning()
        count = np.count_nonzero(mask & (true.jsd_bits > THETA))
        assert last.count_bounds is not None
        assert last.count_bounds[0] <= count <= last.count_bounds[1]
        assert last.bounds is not None
        assert last.bounds["dtc_lin"] is not None
        low, high = last.bounds["dtc_lin"]
        assert low - 1e-9 <= max(0.05, 0.95 - 0.09 * count) <= high + 1e-9
        assert last.result is not None
        assert (last.result.bounds, last.result.count_bounds) == ((low, high), last.count_bounds)
        assert spread(trace).max() < {1: 1, 5: 0.7, 20: 0.1}[k]
        for event, least, most in zip(found, trace.jsd_low_bits, trace.jsd_high_bits, strict=True):
            assert event.jsd_bounds == (float(least), float(most))
            assert event.unexpected is None


def test_what_runs_agrees_with_the_end_and_with_any_block(pair: Pair, server: ModelServer) -> None:
    whole = followed(server, pair, top_logprobs=5, block=500)
    for block in (1, 3, 8):
        found = followed(server, pair, top_logprobs=5, block=block, precision="float32")
        for one, other in zip(found, whole, strict=True):
            assert one.text == other.text
            assert one.jsd_bounds == pytest.approx(other.jsd_bounds, abs=1e-5)
            assert (one.count, one.count_bounds) == (other.count, other.count_bounds)
            assert one.bounds == other.bounds
        highs = [event.bounds["dtc_lin"] for event in found if event.bounds is not None]
        known = [bounds for bounds in highs if bounds is not None]
        assert (np.diff([high for _, high in known]) <= 1e-9).all()
        assert (np.diff([low for low, _ in known]) <= 1e-9).all()


def test_two_servers_know_no_more(pair: Pair, server: ModelServer) -> None:
    """A pair of servers has bounds from the same lists, and less of q."""
    found = followed(server, pair, top_logprobs=5)
    assert pair.q.loaded is not None
    with ModelServer(pair.q.loaded) as other:
        both: ServerPair = divtok.load_server_pair(
            P, Q, p_server=server.base_url, q_server=other.base_url, top_k=5
        )
        prompt = prompt_ids(pair.p.tokenizer, QUESTION)
        theirs = both.trace_ids(prompt_ids=prompt, token_ids=[event.token_id for event in found])
    ours, two = (spread(trace) for trace in (trace_of(found), theirs))
    assert ours.mean() < two.mean()


@pytest.mark.parametrize(
    "without", [{"token_ids": False}, {"token_id_keys": False}, {"rounded": "bf16"}, {"rounded": 3}]
)
def test_tokens_are_told_in_every_way(pair: Pair, without: dict[str, Any]) -> None:
    assert pair.p.loaded is not None
    with ModelServer(pair.p.loaded, **without) as server:
        found = followed(server, pair, top_logprobs=20)
    trace, true = trace_of(found), exact(pair, found)
    assert trace.jsd_low_bits is not None
    assert trace.jsd_high_bits is not None
    assert (trace.jsd_low_bits <= true.jsd_bits + 1e-6).all()
    assert (trace.jsd_high_bits >= true.jsd_bits - 1e-6).all()


def watched(pair: Pair) -> tuple[Watch, WrittenPair]:
    there = written_pair(P, pair.q)
    usual = dict.fromkeys(["estimators", "fitted", "prior", "policy"])
    asked = Watch.of(
        QUESTION, there, generator=P, theta=THETA, tokens="reasoning", parameters={}, **usual
    )
    return asked, there


def test_such_a_generator_reads_no_text(pair: Pair) -> None:
    asked, _ = watched(pair)
    with pytest.raises(UsageError, match="it reads no text"):
        Following(asked)
    with pytest.raises(UsageError, match="reads no text"):
        asked.scoring.read_once(asked.scoring.row("", QUESTION, "It is 2."))


def test_the_servers_own_prompt_is_read(pair: Pair, server: ModelServer) -> None:
    """Its template may say other things: the auxiliary reads what the generator has read."""
    found = followed(server, pair, top_logprobs=1)
    asked, there = watched(pair)
    following = FollowingTokens(asked, there, WIDTH)
    prompt = prompt_ids(pair.p.tokenizer, "What is 1 + 1?")
    tokens = [event.token_id for event in found]
    true = pair.trace_ids(prompt_ids=prompt, token_ids=tokens)
    content = [
        {
            "token": f"token_id:{token}",
            "logprob": float(row[token]),
            "top_logprobs": [
                {"token": f"token_id:{i}", "logprob": float(x)} for i, x in enumerate(row)
            ],
        }
        for token, row in zip(tokens, table(pair, prompt, tokens), strict=True)
    ]
    following.feed(Part("", {}, {"prompt_token_ids": list(prompt)}))
    following.feed(Part("", {"logprobs": {"content": content}}, {}))
    *_, last = following.end("stop")
    assert last.result is not None
    np.testing.assert_allclose(last.result.trace.jsd_bits, true.jsd_bits, atol=1e-5)


def table(pair: Pair, prompt: tuple[int, ...], tokens: list[int]) -> np.ndarray[Any, Any]:
    """[T, V] what p gives at each of the tokens."""
    import torch

    assert pair.p.loaded is not None
    with torch.inference_mode():
        logits = pair.p.loaded.model(torch.tensor([[*prompt, *tokens]])).logits[0]
    return logits[len(prompt) - 1 : -1].double().log_softmax(-1).float().numpy()


def policy(threshold: float) -> Policy:
    params: dict[str, Any] = {"theta": THETA, "n": 10, "a": 0.95, "b": 0.05}
    return Policy(
        threshold=threshold,
        risk=0.1,
        delta=0.1,
        scored=HowScored("dtc_lin", params, "reasoning", (P, Q)),
        generator=P,
        responses=100,
        problems=100,
        base_risk=0.5,
        coverage=0.5,
        accepted_risk=0.05,
        quantiles=tuple(np.linspace(0, 1, QUANTILES)),
    )


def test_a_policy_accepts_by_the_lower_end_and_stops_by_the_upper_one(
    pair: Pair, server: ModelServer
) -> None:
    found = followed(server, pair, top_logprobs=1)
    last = found[-1]
    assert last.result is not None
    assert last.result.bounds is not None
    low, high = last.result.bounds
    assert low + 0.1 < high  # it takes an open token
    for threshold, action in ((low, "accept"), ((low + high) / 2, "abstain")):
        *_, told = followed(server, pair, top_logprobs=1, policy=policy(threshold), stop=True)
        # What may still be accepted is written to its end.
        assert told.ending == "stop"
        assert told.result is not None
        assert told.result.decision is not None
        assert told.result.decision.action == action
    stopped = followed(server, pair, top_logprobs=1, above=high + 0.01, stop=True, block=1)
    assert (stopped[-1].ending, stopped[-1].result) == ("stopped", None)
    assert stopped[-1].bounds is not None
    first = next(
        event.position
        for event in found
        if event.bounds is not None
        and event.bounds["dtc_lin"] is not None
        and event.bounds["dtc_lin"][1] < high + 0.01 - 1e-9
    )
    assert stopped[-1].position == first


def test_stopping_closes_the_connection(pair: Pair) -> None:
    assert pair.p.loaded is not None
    with ModelServer(pair.p.loaded, pause=0.02) as server:
        given = {"above": 0.99, "stop": True, "block": 1, "temperature": 2.0}
        found = followed(server, pair, top_logprobs=20, **given)
        assert found[-1].ending == "stopped"
        assert server.left.wait(10)
        events = divtok.follow(
            QUESTION, server=server.base_url, model=P, auxiliary=pair.q, block=1, **HOT
        )
        server.left.clear()
        assert next(events).position == 0
        events.close()
        assert server.left.wait(10)


def content(*tokens: int, k: int = 2) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": f"token_id:{token}",
                "logprob": -0.7,
                "top_logprobs": [
                    {"token": f"token_id:{i}", "logprob": -0.7 - 0.3 * (i != token)}
                    for i in [token, *(j for j in range(300, 300 + k) if j != token)][:k]
                ],
            }
            for token in tokens
        ]
    }


def with_logprobs(text: str, *tokens: int, k: int = 2, **more: Any) -> dict[str, Any]:
    chunk = delta(text)
    chunk["choices"][0] |= {"logprobs": content(*tokens, k=k)} | more
    return chunk


def scripted(pair: Pair, step: Step, **given: Any) -> list[divtok.StreamEvent]:
    with ScriptedServer(lambda name, number, request: step) as server:
        there: dict[str, Any] = {
            "server": server.base_url,
            "model": P,
            "auxiliary": pair.q,
            "theta": THETA,
        }
        return list(divtok.follow(QUESTION, **there, **given))


END = delta(finish_reason="stop")
COUNTED = {"choices": [], "usage": {"completion_tokens": 5}}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (events(delta("421 "), END), "no usable log-probs: its answer comes without any"),
        (events(with_logprobs("a", 300, k=1), END), "lists 1 likely tokens where 2 were asked"),
        (events(with_logprobs("a", 300, 301), END, COUNTED), "some of 2 tokens, and 5 were"),
        (events(with_logprobs("a", 300, token_ids=[301]), END), "stand at the token 301"),
        (events(with_logprobs("a", 300, 895), END), "some of token 895, and .*reads 784"),
        (events({**with_logprobs("a", 300), "prompt_token_ids": [9999]}, END), "outside"),
        (refuse(400, "top_logprobs must be at most 5"), "top_logprobs must be at most 5"),
    ],
)
def test_what_a_server_does_not_tell_is_refused(pair: Pair, step: Step, said: str) -> None:
    with pytest.raises(ServerError, match=said):
        scripted(pair, step, top_logprobs=2)


def test_texts_that_do_not_make_the_answer_are_refused(pair: Pair) -> None:
    names = pair.p.tokenizer
    one = next(
        i for i in range(300, 700) if names.decode([i]).strip() and names.decode([i])[0] == " "
    )
    text = names.decode([one])
    likely = [{"token": text, "logprob": -0.1}]
    chunk = delta("other" + text)
    entry = {"token": text, "logprob": -0.1, "top_logprobs": likely}
    chunk["choices"][0]["logprobs"] = {"content": [entry]}
    with pytest.raises(ServerError, match="do not make up the text"):
        scripted(pair, events(chunk, END), top_logprobs=1)


def test_an_answer_of_an_end_alone_is_not_scored(pair: Pair) -> None:
    (end, *_) = pair.p.end_ids
    for step in (events(END), events(with_logprobs("", end), END)):
        with pytest.raises(NothingScoredError, match="no text in it"):
            scripted(pair, step, top_logprobs=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"estimator": "dtc_guarded"}, "needs more than a server tells"),
        ({"estimator": "entropy"}, "needs more than a server tells"),
        ({"top_logprobs": 0}, "top_logprobs is 0"),
        ({"extra_body": {"top_logprobs": 3}}, "may not set 'top_logprobs'"),
        ({"stop": True}, "Nothing says"),
        ({"block": 0}, "block must be"),
        ({"precision": "float8"}, "precision"),
        ({"text": ["a"], "server": None, "model": None}, "nothing to ask: auxiliary"),
        ({"pair": "both"}, "Give one of|Either a pair"),
        ({"auxiliary": 3}, "auxiliary is no model but int"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    pair: Pair, given: dict[str, Any], said: str
) -> None:
    there: dict[str, Any] = {
        "server": "http://127.0.0.1:1/v1",
        "model": P,
        "auxiliary": pair.q,
        "theta": THETA,
    }
    if given.get("pair"):
        given = {"pair": pair}
    with pytest.raises(UsageError, match=said):
        divtok.follow(QUESTION, **(there | given))


def test_a_pair_takes_nothing_that_is_for_an_auxiliary(pair: Pair) -> None:
    with pytest.raises(UsageError, match="what this is for: top_logprobs"):
        divtok.follow(QUESTION, pair=pair, server="http://a/v1", model="m", top_logprobs=5)
