"""The routes, asked over HTTP: the library's numbers, and what a client is told beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from service import QUESTION, RIGHT, WRONG, Running

import divtok
from divtok.decide.policy import QUANTILES, HowScored, Policy
from divtok.page.write import page_html, served_policy
from divtok.trace.pair import Pair

PAIR = ["divtok/tiny-0.5m", "divtok/tiny-0.3m"]
FIELDS = [
    *("version", "confidence", "low", "high", "source", "estimator", "theta", "count"),
    *("reasoning_tokens", "pair", "exact", "prior", "status", "reason", "decision"),
]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("tiny")


@pytest.fixture(scope="module")
def service(pair: Pair) -> Iterator[Running]:
    with Running(pair) as running:
        yield running


@pytest.mark.parametrize("response", [RIGHT, WRONG, "It is \\boxed{551}.", "Für 30 €: 日本 🙂"])
def test_one_response_has_the_confidence_of_the_library(
    service: Running, pair: Pair, response: str
):
    answer = service.post("/v1/confidence", {"question": QUESTION, "response": response})
    own = divtok.confidence(QUESTION, response, pair=pair)
    told = answer.json()
    assert answer.status_code == 200
    assert list(told) == FIELDS
    assert told["confidence"] == told["low"] == told["high"] == own.value
    assert told["count"] == own.count
    assert told["theta"] == own.theta
    assert told["reasoning_tokens"] == int(own.trace.reasoning().sum())
    assert told["pair"] == PAIR
    assert (told["status"], told["reason"], told["decision"]) == ("ok", None, None)
    assert (told["version"], told["source"], told["exact"]) == (1, "measured", True)


def test_several_responses_keep_their_order_and_none_ends_the_others(service: Running, pair: Pair):
    asked = {"question": QUESTION, "responses": [WRONG, " ", RIGHT]}
    found = service.post("/v1/confidence", asked).json()["results"]
    own = [divtok.confidence(QUESTION, text, pair=pair).value for text in (WRONG, RIGHT)]
    assert [one["confidence"] for one in found] == [own[0], None, own[1]]
    assert (found[1]["status"], found[1]["reason"]) == ("empty", "there is no text in it")


def test_one_response_in_a_list_is_answered_with_a_list(service: Running):
    found = service.post("/v1/confidence", {"question": QUESTION, "responses": [RIGHT]}).json()
    assert [one["status"] for one in found["results"]] == ["ok"]


def test_options_are_those_of_the_library(service: Running, pair: Pair):
    asked = {"question": QUESTION, "response": WRONG, "estimator": "dtc_guarded", "theta": 0.3}
    told = service.post("/v1/confidence", asked).json()
    own = divtok.confidence(QUESTION, WRONG, pair=pair, estimator="dtc_guarded", theta=0.3)
    assert told["confidence"] == pytest.approx(own.value, abs=1e-6)
    assert (told["estimator"], told["theta"], told["count"]) == ("dtc_guarded", 0.3, own.count)


def test_tokens_are_those_of_the_library_with_their_places(service: Running, pair: Pair):
    asked = {"question": QUESTION, "response": WRONG, "tokens": True}
    told = service.post("/v1/confidence", asked).json()["tokens"]
    own = divtok.confidence(QUESTION, WRONG, pair=pair)
    assert "".join(told["text"]) == WRONG
    ends = [*told["text_offset"][1:], len(WRONG)]
    cut = [WRONG[start:end] for start, end in zip(told["text_offset"], ends, strict=True)]
    assert cut == told["text"] == [token.text for token in own.tokens]
    assert told["divergent"] == [token.divergent for token in own.tokens]
    assert told["unexpected"] == [token.unexpected for token in own.tokens]
    assert told["jsd_bits"] == pytest.approx([t.jsd_bits for t in own.tokens], abs=1e-4)
    assert told["counted"] == [0, len(own.tokens)]
    first, last = told["answer"]
    assert "".join(told["text"][first:last]) == "541"


def test_messages_are_read_as_an_import_reads_them(service: Running):
    turns = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": QUESTION},
    ]
    asked = {"messages": turns, "response": RIGHT}
    alone = {"question": QUESTION, "response": RIGHT}
    assert (
        service.post("/v1/confidence", asked).json() == service.post("/v1/confidence", alone).json()
    )
    refused = service.post("/v1/confidence", {"messages": turns[:1], "response": RIGHT})
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "messages")


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"question": QUESTION}, None),
        ({"question": QUESTION, "response": RIGHT, "responses": [RIGHT]}, None),
        ({"question": 1, "response": RIGHT}, "question"),
        ({"question": QUESTION, "response": RIGHT, "theta": True}, "theta"),
        ({"question": QUESTION, "response": RIGHT, "estimator": "dtc_line"}, "estimator"),
        ({"question": QUESTION, "response": RIGHT, "estimator": "sc"}, "estimator"),
        ({"question": QUESTION, "response": RIGHT, "prior": 0.5}, "prior"),
        ({"question": QUESTION, "response": RIGHT, "other": 1}, "other"),
    ],
)
def test_what_is_wrong_is_named(service: Running, wrong: object, param: str | None):
    answer = service.post("/v1/confidence", wrong)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (422, param, 422)
    assert param is None or error["message"].startswith(param)


def test_a_number_that_is_none_is_refused(service: Running):
    body = b'{"question": "a", "response": "b", "theta": NaN}'
    assert service.post("/v1/confidence", body).status_code == 422


def test_a_lone_surrogate_is_refused(service: Running):
    body = b'{"question": "a", "response": "\\ud800"}'
    assert service.post("/v1/confidence", body).status_code == 422


# In the form that its client has (pkg/selection/router_r1_client.go).
ROUTER = b'{"question":"What is 1 + 1?","answer":"1 + 1 = 2.","threshold":0.7,"context":""}'


def test_a_semantic_router_gets_what_it_reads(service: Running, pair: Pair):
    answer = service.post("/verify", ROUTER, **{"User-Agent": "Go-http-client/1.1"})
    told = answer.json()
    own = divtok.confidence("What is 1 + 1?", "1 + 1 = 2.", pair=pair).value
    assert answer.status_code == 200
    assert told["confidence"] == own
    assert told["should_escalate"] is (own < 0.7)
    assert (told["verified_count"], told["total_samples"]) == (int(own >= 0.7), 1)
    assert (told["samples"], told["threshold"]) == ([], 0.7)
    asked = json.loads(ROUTER) | {"threshold": 0.0, "context": "Sums."}
    with_context = service.post("/verify", asked).json()
    behind = divtok.confidence("Sums.\n\nWhat is 1 + 1?", "1 + 1 = 2.", pair=pair).value
    assert (with_context["confidence"], with_context["should_escalate"]) == (behind, False)
    assert service.get("/health").json()["status"] == "ok"


def test_a_router_that_is_told_nothing_turns_to_a_larger_model(service: Running):
    told = service.post("/verify", {"question": "a", "answer": "", "threshold": 0.0}).json()
    assert (told["confidence"], told["should_escalate"]) == (None, True)


def test_health_says_who_reads(service: Running):
    answer = service.get("/health")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "version": "0.1.0", "pair": PAIR}


def test_the_numbers_count_what_was_asked(service: Running):
    def number(name: str) -> float:
        lines = service.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    name = 'divtok_requests_total{route="/v1/confidence",status="200"}'
    before, scored = number(name), number('divtok_responses_total{status="ok"}')
    service.post("/v1/confidence", {"question": QUESTION, "responses": [RIGHT, WRONG]})
    assert number(name) == before + 1
    assert number('divtok_responses_total{status="ok"}') == scored + 2
    assert number("divtok_waiting_rows") == 0


def test_the_page_comes_with_its_policy(service: Running):
    answer = service.get("/")
    assert answer.text == page_html(mode="serve")
    assert answer.headers["content-security-policy"] == served_policy()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_without_a_server_behind_there_are_no_chat_completions(service: Running):
    answer = service.post("/v1/chat/completions", {})
    assert answer.status_code == 404
    assert "--upstream" in answer.json()["error"]["message"]


def test_a_policy_decides_with_what_it_was_made_with(pair: Pair):
    low = "Hm. It may be some 541 or so, I guess."
    values = [
        divtok.confidence(QUESTION, text, pair=pair, theta=0.3).value for text in (RIGHT, low)
    ]
    assert values[1] < 0.9 <= values[0]
    scored = HowScored(
        "dtc_lin", {"theta": 0.3, "n": 10, "a": 0.95, "b": 0.05}, "reasoning", (PAIR[0], PAIR[1])
    )
    policy = Policy(
        0.9, 0.1, 0.1, scored, "g", 100, 100, 0.3, 0.5, 0.05, (0.5,) * QUANTILES, "escalate", "big"
    )
    with Running(pair, policy=policy) as service:
        asked = {"question": QUESTION, "responses": [RIGHT, low, ""]}
        found = service.post("/v1/confidence", asked).json()["results"]
        other = service.post("/v1/confidence", {**asked, "estimator": "nsl"})
    assert [one["confidence"] for one in found] == [*values, None]
    assert [one["theta"] for one in found] == [0.3] * 3
    decisions = [one["decision"] for one in found]
    assert [(d["action"], d["to"]) for d in decisions] == [
        ("accept", None),
        ("escalate", "big"),
        ("escalate", "big"),
    ]
    assert (other.status_code, other.json()["error"]["param"]) == (422, "estimator")
