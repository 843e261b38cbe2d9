"""`follow` of a server's stream: what is asked, what comes, and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from scripted_server import Request, ScriptedServer, Step, delta, events, ok, refuse

import divtok
from divtok.endpoints.settings import ServerSettings
from divtok.errors import NothingScoredError, ServerError, ServerUnreachableError
from divtok.protocols.prompts import messages_for
from divtok.trace.pair import Pair

P, Q = "divtok/tiny-1.6m", "divtok/tiny-0.3m"
QUESTION = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
PIECES = ["421 ", "+ 130", " = ", "551.\n", "The answer", " is \\boxed", "{55", "1}."]
TEXT = "".join(PIECES)
# Nothing of this is likely, so that nearly every token diverges.
ODD = "Purple 9 zebras (or 8?) sing; 77 x 3, hmm, why not 12 of 5 then. "


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair(P, Q, device="cpu")


def answer(*pieces: str) -> list[dict[str, Any]]:
    return [delta(role="assistant"), *map(delta, pieces), delta(finish_reason="stop")]


def asked(pair: Pair, step: Step | Callable[[int], Step], **given: Any) -> Any:
    """The events, and the server that was asked."""

    def script(name: str, number: int, request: Request) -> Step:
        return step if isinstance(step, Step) else step(number)

    settings = given.pop("settings", {})
    with ScriptedServer(script) as server:
        address = ServerSettings(server.base_url, first_wait_s=0.01, max_wait_s=0.01, **settings)
        found = divtok.follow(QUESTION, pair=pair, server=address, model="theirs", **given)
        return list(found), server


def test_the_answer_and_its_end(pair: Pair) -> None:
    found, server = asked(pair, events(*answer(*PIECES), {"choices": [], "usage": {}}))
    assert "".join(event.text for event in found) == TEXT
    last, whole = found[-1], divtok.confidence(QUESTION, TEXT, pair=pair)
    assert (last.ending, last.acceptance) == ("stop", None)
    assert last.result.value == pytest.approx(whole.value, abs=1e-6)
    assert (last.result.count, last.result.theta) == (whole.count, whole.theta)
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == {
        "model": "theirs",
        "messages": messages_for(QUESTION, protocol="cot"),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_what_is_given_is_asked_for(pair: Pair) -> None:
    extra = {"stream_options": None, "top_k": 5}
    given = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_tokens": 99}
    _, server = asked(pair, events(*answer(TEXT)), extra_body=extra, **given)
    body = server.requests[0].body
    assert {name: body[name] for name in given} == given
    assert body["top_k"] == 5
    assert "stream_options" not in body


def test_reasoning_stands_before_the_text(pair: Pair) -> None:
    parts = [
        delta(reasoning_content="421 + "),
        delta(reasoning="130"),
        delta("= 551, "),
        delta("yes."),
    ]
    found, _ = asked(pair, events(*parts, delta(finish_reason="length")))
    assert "".join(event.text for event in found) == "421 + 130\n\n= 551, yes."
    assert found[-1].ending == "length"


def test_other_choices_and_comments_are_left_out(pair: Pair) -> None:
    other = delta("other")
    other["choices"][0]["index"] = 1
    step = events(delta("421 + 130 "), other, delta("= 551.", "content_filter"), done=False)
    parts = [b": waiting\r\n\r\n", step.parts[0].replace(b"\n", b"\r\n"), *step.parts[1:]]
    joined = b"".join(parts)[:-2]  # without the last blank line, byte by byte
    bare = Step(headers=step.headers, end="events", parts=[bytes([byte]) for byte in joined])
    found, _ = asked(pair, bare)
    assert "".join(event.text for event in found) == "421 + 130 = 551."
    assert found[-1].ending == "unknown"


def test_stopping_closes_the_connection(pair: Pair) -> None:
    chunks = [delta(ODD) for _ in range(200)]
    step = events(*chunks, between=0.01, hold=20.0)
    with ScriptedServer(lambda *_: step) as server:
        found = list(
            divtok.follow(
                QUESTION, pair=pair, server=server.base_url, model="m", above=0.5, stop=True
            )
        )
        assert found[-1].ending == "stopped"
        assert server.left.wait(10)
    assert server.sent < len(chunks)


def test_closing_closes_the_connection(pair: Pair) -> None:
    step = events(*[delta(ODD) for _ in range(200)], between=0.01, hold=20.0)
    with ScriptedServer(lambda *_: step) as server:
        found = divtok.follow(QUESTION, pair=pair, server=server.base_url, model="m")
        assert not server.requests
        assert next(found).position == 0
        assert not server.left.is_set()
        found.close()
        assert server.left.wait(10)
        assert list(found) == []


def test_counts_of_drafts_come_with_the_end(pair: Pair) -> None:
    steps = {"per_step_drafted": [4, 4], "per_step_accepted": [4, 1]}
    last = {"choices": [], "usage": {"completion_tokens": 8}}
    metrics = {"metrics": {"time_to_first_token_ms": 3, "speculative_decoding": steps}}
    found, _ = asked(pair, events(*answer(*PIECES), last | metrics))
    assert found[-1].acceptance == divtok.acceptance([4, 4], [4, 1], tokens=8)
    assert not any(event.acceptance for event in found[:-1])
    summary = {"metrics": {"speculative_decoding": {"acceptance_histogram": [1, 1]}}}
    found, _ = asked(pair, events(*answer(*PIECES), last | summary))
    assert found[-1].acceptance is None
    steps["per_step_accepted"] = [5, 1]
    with pytest.warns(UserWarning, match="left out: A step must accept"):
        found, _ = asked(pair, events(*answer(*PIECES), last | metrics))
    assert found[-1].result is not None


def test_a_busy_server_is_asked_again(pair: Pair) -> None:
    def step(number: int) -> Step:
        busy = [refuse(503), refuse(429, headers={"Retry-After": "0"}), Step(end="reset before")]
        return [*busy, events(*answer(TEXT))][number - 1]

    found, server = asked(pair, step)
    assert found[-1].done
    assert len(server.requests) == 4


CUT = [delta("421 + 130 = "), delta("551. And so ")]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (refuse(401, "who?"), "refused with HTTP 401: who?"),
        (refuse(404, "no such model"), "refused with HTTP 404: no such model"),
        (ok({"choices": []}), "does not stream its answers: it sends application/json"),
        (events(*CUT, done=False), "to the end: it ended"),
        (events(*CUT, delta(finish_reason="abort")), "to the end: finish_reason 'abort'"),
        (events(*CUT, {"error": {"message": "out of memory"}}), "error: out of memory"),
        (events(*CUT, [1]), "it sent list for an event"),
        (events(delta(content={"a": 1})), "'content' is not text"),
    ],
)
def test_what_goes_wrong_is_said(pair: Pair, step: Step, said: str) -> None:
    with pytest.raises(ServerError, match=said) as caught:
        asked(pair, step)
    assert caught.value.next_step


def test_an_event_that_is_not_json(pair: Pair) -> None:
    step = events(*CUT, done=False)
    broken = Step(headers=step.headers, end="events", parts=[*step.parts, b"data: {oh\n\n"])
    with pytest.raises(ServerError, match=r"an event of it is not JSON: \{oh"):
        asked(pair, broken)


def test_a_server_that_falls_silent(pair: Pair) -> None:
    step = events(*CUT, done=False, hold=20.0)
    with pytest.raises(ServerError, match=r"to the end: nothing came for 0.3 s"):
        asked(pair, step, settings={"timeout_s": 0.3})


def test_a_stream_that_takes_too_long(pair: Pair) -> None:
    step = events(*CUT * 100, between=0.02)
    with pytest.raises(ServerError, match=r"longer than the deadline of 0.5 s"):
        asked(pair, step, settings={"timeout_s": 0.5, "deadline_s": 0.5})


def test_a_server_that_is_not_there(pair: Pair) -> None:
    nowhere = ServerSettings("http://127.0.0.1:9/v1", max_attempts=2, first_wait_s=0, max_wait_s=0)
    with pytest.raises(ServerUnreachableError, match="cannot be reached"):
        list(divtok.follow(QUESTION, pair=pair, server=nowhere, model="m"))


def test_an_answer_without_text_is_not_scored(pair: Pair) -> None:
    with pytest.raises(NothingScoredError, match="no text in it"):
        asked(pair, events(*answer()))


def test_the_key_goes_along_and_is_never_shown(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_KEY", "sk-0123456789abcdef")
    seen: list[str] = []

    def script(name: str, number: int, request: Request) -> Step:
        seen.append(request.headers["Authorization"])
        body = json.dumps({"error": {"message": f"bad key {seen[-1]}"}}).encode()
        return Step(403, body)

    with ScriptedServer(script) as server:
        host = server.base_url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("DIVTOK_KEYS", f"{host}=THEIR_KEY")
        with pytest.raises(ServerError, match=r"bad key Bearer \*\*\*"):
            list(divtok.follow(QUESTION, pair=pair, server=server.base_url, model="m"))
    assert seen == ["Bearer sk-0123456789abcdef"]
