"""Responses and replies from a server: what is asked, what is read, and a row whatever happens."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from scripted_server import Request, ScriptedServer, Step, chat, ok, refuse

from divtok.errors import ConfigError, ServerError, UsageError
from divtok.generate.chat_calls import replies, responses
from divtok.generate.engine import ENGINES, Asked, EngineSetup, Generated, Replied
from divtok.generate.engines.chat import ApiSection
from divtok.generate.jobs import Job
from divtok.protocols.prompts import CONFIDENCE_QUESTION
from divtok.records import Problem, Sampling, Trajectory
from divtok.store.run import Run

SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."
KEY = "sk-secret-0123456789abcdef"


def job(number: int = 1, **changes: Any) -> Job:
    problem = Problem(f"p{number}", "sums", f"Question {number}?", "42")
    known: dict[str, Any] = {
        "problem": problem,
        "sample": 0,
        "generator": "gen",
        "protocol": "cot",
        "sampling": Sampling(),
    }
    return Job(**{**known, **changes})


def setup(
    url: str, *, served_name: str = "gen", proved: bool = False, **options: Any
) -> EngineSetup:
    """A setup whose waits are short, with these options."""
    quick: dict[str, Any] = {
        "first_wait_s": 0.001,
        "max_wait_s": 0.004,
        "timeout_s": 10.0,
        "max_attempts": 4,
        "concurrency": 8,
    }
    return EngineSetup(
        model="gen",
        sampling=Sampling(),
        served_name=served_name,
        options=ApiSection(base_url=url, **{**quick, **options}),
        answered=frozenset({(url, served_name)} if proved else ()),
    )


def respond_all(
    jobs: Iterable[Job], to: EngineSetup, *, keep: Callable[[Sequence[Generated]], None]
) -> None:
    with closing(responses(jobs, to)) as groups:
        for rows in groups:
            keep(rows)


def reply_all(
    rows: Sequence[tuple[Trajectory, str]],
    to: EngineSetup,
    *,
    max_tokens: int = 64,
    keep: Callable[[Sequence[Replied]], None],
) -> None:
    for made in replies((Asked(*row) for row in rows), to, max_tokens=max_tokens):
        keep(made)


def respond(script: Any, jobs: Sequence[Job] | None = None, **changes: Any) -> list[Generated]:
    kept: list[Generated] = []
    with ScriptedServer(script) as server:
        respond_all(jobs or [job()], setup(server.base_url, **changes), keep=kept.extend)
    return kept


def respond_to(answer: Any, **changes: Any) -> Generated:
    return respond(lambda *_: ok(answer), **changes)[0]


def asked(work: Callable[[str], None]) -> dict[str, Any]:
    """The body of the one request that the work makes."""
    with ScriptedServer(lambda *_: ok(chat("fine"))) as server:
        work(server.base_url)
        (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    return request.body


def asked_for(one: Job, **changes: Any) -> dict[str, Any]:
    return asked(lambda url: respond_all([one], setup(url, **changes), keep=lambda _: None))


def test_the_request() -> None:
    body = asked_for(job(sampling=Sampling(temperature=0.6, top_p=0.95, max_length=100)))
    seed = body.pop("seed")
    assert isinstance(seed, int)
    assert 0 <= seed < 2**31
    assert body == {
        "model": "gen",
        "messages": [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": "Question 1?"},
        ],
        "stream": False,
        "n": 1,
        "max_tokens": 100,
        "temperature": 0.6,
        "top_p": 0.95,
    }


def test_the_request_with_everything() -> None:
    sampling = Sampling(temperature=1.0, top_p=0.5, top_k=20, presence_penalty=1.5, max_length=50)
    body = asked_for(
        job(sampling=sampling),
        served_name="org/Gen-7B",
        token_limit_field="max_completion_tokens",
        logprobs=True,
        extra_body={"return_token_ids": True, "chat_template_kwargs": {"enable_thinking": False}},
    )
    del body["messages"], body["seed"]
    assert body == {
        "model": "org/Gen-7B",
        "stream": False,
        "n": 1,
        "max_completion_tokens": 50,
        "temperature": 1.0,
        "top_p": 0.5,
        "top_k": 20,
        "presence_penalty": 1.5,
        "logprobs": True,
        "return_token_ids": True,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_each_row_has_a_seed_of_its_own_which_never_changes() -> None:
    def seeds() -> dict[str, int]:
        jobs = [job(1), job(2), job(1, sample=1), job(1, sampling=Sampling(seed=1))]
        with ScriptedServer(lambda *_: ok(chat("x"))) as server:
            for one in jobs:
                respond_all([one], setup(server.base_url), keep=lambda _: None)
            return {
                one.key: request.body["seed"]
                for one, request in zip(jobs, server.requests, strict=True)
            }

    first = seeds()
    assert len(set(first.values())) == 4
    assert first == seeds()


def test_a_seed_can_be_left_out() -> None:
    assert "seed" not in asked_for(job(), extra_body={"seed": None})


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"base_url": None}, "no base URL"), ({"prompt_price": 1.0}, "go together")],
)
def test_what_a_server_cannot_be_asked_with_is_refused(wrong: dict[str, Any], why: str) -> None:
    asked = setup("http://127.0.0.1:1/v1")
    ENGINES.get("api").check(asked)
    options = asked.options.model_copy(update=wrong)
    with pytest.raises(ConfigError, match=why) as caught:
        ENGINES.get("api").check(replace(asked, options=options))
    assert caught.value.next_step


def test_a_response() -> None:
    one = job(3, sample=2)
    (response,) = respond(lambda *_: ok(chat("It is \\boxed{4}.")), [one])
    assert response.trajectory == Trajectory(
        key=one.key,
        problem_id="p3",
        benchmark="sums",
        sample=2,
        generator="gen",
        prompt_ids=(),
        token_ids=(),
        text="It is \\boxed{4}.",
        finish_reason="stop",
        protocol="cot",
        sampling=one.sampling,
    )
    call = response.call
    assert (call.key, call.purpose, call.model) == (one.key, "response", "gen")
    assert (call.attempts, call.setbacks, call.reason) == (1, (), None)
    assert (call.prompt_tokens, call.completion_tokens, call.cost) == (7, 11, None)
    assert response.sampled is None


def test_where_it_came_from_and_what_it_cost() -> None:
    with ScriptedServer(lambda *_: ok(chat("x"))) as server:
        kept: list[Generated] = []
        settings = setup(
            server.base_url,
            served_name="org/Gen",
            prompt_price=2.0,
            completion_price=10.0,
        )
        respond_all([job()], settings, keep=kept.extend)
    assert kept[0].call.server == server.base_url
    assert kept[0].call.model == "org/Gen"
    assert kept[0].trajectory.generator == "gen"
    assert kept[0].call.cost == pytest.approx((7 * 2 + 11 * 10) / 1e6)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        [],
        {"prompt_tokens": 7},
        {"prompt_tokens": 7, "completion_tokens": -1},
        {"prompt_tokens": 7, "completion_tokens": "11"},
        {"prompt_tokens": 7, "completion_tokens": True},
        {"prompt_tokens": 7, "completion_tokens": 2**70},
    ],
)
def test_without_usage_no_cost(usage: Any) -> None:
    answer = {**chat("x"), "usage": usage}
    response = respond_to(answer, prompt_price=2.0, completion_price=10.0)
    assert response.trajectory.text == "x"
    assert response.call.completion_tokens is None
    assert response.call.cost is None


HOSTILE: tuple[Step, ...] = (
    refuse(429, "slow down"),
    refuse(429, "slow down", {"Retry-After": "0"}),
    refuse(429, "slow down", {"retry-after-ms": "3"}),
    refuse(429, "slow down", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    refuse(500, "oops"),
    Step(502, b"<html>Bad Gateway</html>"),
    refuse(503, "busy"),
    Step(end="reset before"),
    ok(chat("never whole"), end="reset within"),
    ok(chat("never whole"), end="closed within"),
    Step(body=b"}{ not json"),
    Step(body=b"<html>Please log in</html>"),
    Step(),
    ok({"choices": []}),
    ok({"error": {"message": "worker died"}}),
    ok(chat("half of", finish_reason=None)),
)
# Few, because each costs a time limit that a busy machine does not reach otherwise.
SLOW = {("Question 7?", 1), ("Question 8?", 1)}


def hostile_step(name: str, number: int) -> Step | None:
    """The step for the n-th call of a name if it is a hostile one, which 30 % are."""
    if (name, number) in SLOW:
        return ok(chat("too late"), end="slow", seconds=60.0)
    stream = random.Random(f"seed 1/{name}/{number}")
    return stream.choice(HOSTILE) if stream.random() < 0.3 else None


def test_a_hostile_server() -> None:
    """30 % of calls come to nothing: still one row for each job, and the right one."""
    jobs = [job(number) for number in range(300)]
    most = 4

    def script(name: str, number: int, _request: Request) -> Step:
        good = ok(chat(f"The answer to {name}"), seconds=0.001)
        return hostile_step(name, number) or good

    with ScriptedServer(script) as server:
        kept: list[Generated] = []
        settings = setup(server.base_url, timeout_s=4.0, max_attempts=most)
        respond_all(jobs, settings, keep=kept.extend)
    assert sorted(r.trajectory.key for r in kept) == sorted(one.key for one in jobs)
    by_key = {r.trajectory.key: r for r in kept}
    failed = 0
    for one in jobs:
        name = one.problem.question
        good = [n for n in range(1, most + 1) if hostile_step(name, n) is None]
        attempts = good[0] if good else most
        response = by_key[one.key]
        assert server.calls[name] == attempts, response.call.setbacks
        assert response.call.attempts == attempts
        assert len(response.call.setbacks) == (attempts - 1 if good else most)
        if good:
            assert response.trajectory.text == f"The answer to {name}"
            assert (response.trajectory.finish_reason, response.call.reason) == ("stop", None)
        else:
            failed += 1
            assert (response.trajectory.text, response.trajectory.failed) == ("", True)
            assert response.trajectory.reason == response.call.reason
            assert response.call.setbacks[-1] in (response.call.reason or "")
    assert failed > 0  # or the last branch was never tried
    assert server.most_in_work <= 8


def test_rows_can_be_stored(tmp_path: Path) -> None:
    """Whatever a server says, its row goes into a table and comes out as it was."""
    texts = ["plain", "\ud800 half", "nul \x00", "\x1b[31m", "\U0001f600", "", "￿\u2028"]
    failing = refuse(500, "\ud800 nul \x00 esc \x1b[31m")

    def script(name: str, _number: int, _request: Request) -> Step:
        number = int(name.removeprefix("Question ").removesuffix("?"))
        return ok(chat(texts[number])) if number < len(texts) else failing

    kept = respond(script, [job(number) for number in range(8)])
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        run.trajectories.append([r.trajectory for r in kept])
        run.calls.append([r.call for r in kept])
    assert run.trajectories.read() == [r.trajectory for r in kept]
    assert run.calls.read() == [r.call for r in kept]
    by_id = {r.trajectory.problem_id: r.trajectory for r in kept}
    assert by_id["p1"].text == "\ufffd half"
    assert by_id["p2"].text == "nul \ufffd"
    for number in (0, 3, 4, 5, 6):
        assert by_id[f"p{number}"].text == texts[number]
    assert by_id["p7"].failed


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_stops_at_once_and_keeps_what_is_finished(status: int) -> None:
    def script(name: str, number: int, _request: Request) -> Step:
        return refuse(status, "not with me") if name == "Question 50?" else ok(chat("x"))

    kept: list[Generated] = []
    with ScriptedServer(script) as server:
        with pytest.raises(ServerError, match="not with me"):
            respond_all(
                (job(number) for number in range(10_000)),
                setup(server.base_url),
                keep=kept.extend,
            )
        assert server.calls.total() < 1000
    assert 43 <= len(kept) < 1000
    assert all(r.trajectory.text == "x" for r in kept)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_prompt_that_is_refused_is_a_failed_row(status: int) -> None:
    def script(name: str, _number: int, _request: Request) -> Step:
        long = "maximum context length is 10 tokens"
        return refuse(status, long) if name == "Question 5?" else ok(chat("x"), seconds=0.01)

    kept = respond(script, [job(number) for number in range(40)])
    assert len(kept) == 40
    (bad,) = (r for r in kept if r.trajectory.failed)
    assert bad.trajectory.problem_id == "p5"
    assert bad.trajectory.reason == bad.call.reason
    assert f"HTTP {status}: maximum context length" in (bad.call.reason or "")
    assert bad.call.attempts == 1


def test_a_row_that_is_refused_again() -> None:
    """What is left of a run may be nothing but what the server will not take."""
    with pytest.raises(ServerError):
        respond(lambda *_: refuse(400, "too long"))
    with ScriptedServer(lambda *_: refuse(400, "too long")) as server:
        kept: list[Generated] = []
        asked = setup(server.base_url, proved=True)
        respond_all([job()], asked, keep=kept.extend)
        replied: list[Replied] = []
        rows = [(trajectory(), "2 + 2?")]
        reply_all(rows, asked, keep=replied.extend)
    assert kept[0].trajectory.failed
    assert "too long" in (replied[0].reply.reason or "")


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("The maximum context length is 4096 tokens.", "sampling.max_length"),
        ("Use 'max_completion_tokens' instead.", "generate.api.token_limit_field"),
        ("Unexpected token in JSON", "Change what"),
    ],
)
def test_the_next_step_after_a_refusal(said: str, step: str) -> None:
    with pytest.raises(ServerError) as caught:
        respond(lambda *_: refuse(400, said))
    assert step in (caught.value.next_step or "")


@pytest.mark.parametrize(
    ("answer", "text", "reason"),
    [
        (chat(None, message={"refusal": "I will not"}), "I will not", "The model refused: I will"),
        (chat(None, "content_filter"), "", "content filter"),
        (chat(None, "tool_calls"), "", "tool"),
    ],
)
def test_the_models_own_answer_is_no_failure(answer: Any, text: str, reason: str) -> None:
    response = respond_to(answer)
    assert not response.trajectory.failed
    assert response.trajectory.text == text
    assert reason in (response.trajectory.reason or "")
    assert response.call.reason is None  # there was an answer


def test_a_reply_that_is_a_refusal_is_one() -> None:
    replied: list[Replied] = []
    with ScriptedServer(lambda *_: ok(chat(None, message={"refusal": "I will not"}))) as server:
        rows = [(trajectory(), "2 + 2?")]
        reply_all(rows, setup(server.base_url), keep=replied.extend)
    reply = replied[0].reply
    assert (reply.text, reply.finish_reason, reply.reason) == ("I will not", "stop", None)


def test_the_key_is_in_no_row_error_log_or_file(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("SERVER_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    ids = list(KEY.encode())
    steps = {
        "Question 1?": ok(chat(f"Your key is {KEY}.", token_ids=ids)),
        "Question 2?": refuse(500, f"bad {KEY}"),
        "Question 3?": Step(body=f"Bearer {KEY}".encode()),
        "Question 4?": ok({"error": {"message": KEY}}),
        "Question 5?": ok(chat(None, message={"refusal": f"I know {KEY}"})),
        "Question 6?": refuse(401, f"{KEY} is no key"),
    }
    settings_shown: list[str] = []
    kept: list[Generated] = []
    with ScriptedServer(lambda name, *_: steps[name]) as server:
        monkeypatch.setenv("DIVTOK_KEYS", f"{urlsplit(server.base_url).netloc}=SERVER_KEY")
        settings = setup(server.base_url, max_attempts=2)
        settings_shown.append(repr(settings))
        respond_all([job(number) for number in range(1, 6)], settings, keep=kept.extend)
        with pytest.raises(ServerError) as caught:
            respond_all([job(6)], settings, keep=kept.extend)
        assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        run.trajectories.append([r.trajectory for r in kept])
        run.calls.append([r.call for r in kept])
    shown = [repr(kept), str(caught.value), repr(caught.value), *settings_shown, caplog.text]
    assert len(kept) == 5
    assert all(KEY not in text for text in shown)
    frames = (table.frame().write_json() for table in (run.trajectories, run.calls))
    assert all(KEY not in text for text in frames)
    assert all(KEY.encode() not in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    (first,) = (r.trajectory for r in kept if r.trajectory.problem_id == "p1")
    assert (first.text, first.token_ids) == ("Your key is ***.", ())


def entries(values: Sequence[Any], names: Sequence[str] | None = None) -> dict[str, Any]:
    names = names or [f"t{i}" for i in range(len(values))]
    return {
        "content": [
            {"token": name, "logprob": value, "top_logprobs": []}
            for name, value in zip(names, values, strict=True)
        ]
    }


def test_ids_and_logprobs_make_a_reading() -> None:
    answer = chat("a b", token_ids=[5, 6, 0], logprobs=entries([-0.5, 0, -9999.0]))
    answer["prompt_token_ids"] = [1, 2]
    response = respond_to(answer, logprobs=True)
    assert response.trajectory.token_ids == (5, 6, 0)
    assert response.trajectory.prompt_ids == (1, 2)
    assert response.trajectory.retokenized is False
    assert response.sampled is not None
    assert (response.sampled.kind, response.sampled.model) == ("sampled", "gen")
    assert response.sampled.key == response.trajectory.key
    assert response.sampled.logprob.dtype == np.float32
    assert response.sampled.logprob.tolist() == [-0.5, 0.0, -9999.0]
    assert response.sampled.reason is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (chat("a b"), "gave no log-probs"),
        (chat("a b", token_ids=[5, 6], logprobs=entries([-0.5])), "every token"),
        (chat("a b", logprobs=entries([float("-inf")] * 11)), "cannot be a log-prob"),
        (chat(None, "length"), "cut off"),
        (chat(None, "tool_calls"), "tool"),
        ({}, "no response"),
    ],
)
def test_logprobs_that_cannot_be_had_are_told(answer: Any, why: str) -> None:
    response = respond_to(answer, logprobs=True)
    assert response.sampled is not None
    assert (response.sampled.kind, response.sampled.model) == ("sampled", "gen")
    assert response.sampled.key == response.trajectory.key
    assert len(response.sampled.logprob) == 0
    assert why in (response.sampled.reason or "")


def test_logprobs_that_were_not_asked_for_are_not_taken() -> None:
    answer = chat("a b", token_ids=[5], logprobs=entries([-0.5]))
    assert respond_to(answer).sampled is None


FAILED_TRAJECTORY = Trajectory(
    "k1", "p", "sums", 0, "gen", (), (), "", "failed", "cot", Sampling(), reason="No answer"
)
EMPTY_TRAJECTORY = Trajectory("k2", "p", "sums", 0, "gen", (), (), "", "stop", "cot", Sampling())


def trajectory(key: str = "k", **changes: Any) -> Trajectory:
    known: dict[str, Any] = {
        "text": "It is 4.",
        "finish_reason": "stop",
        "sampling": Sampling(top_k=7),
    }
    known |= {"protocol": "cot", **changes}
    return Trajectory(key, "p", "sums", 0, "gen", (), (), **known)


def test_the_request_for_a_reply() -> None:
    def ask(url: str) -> None:
        reply_all([(trajectory(), "2 + 2?")], setup(url), keep=lambda _: None)

    body = asked(ask)
    assert body["messages"] == [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "It is 4."},
        {"role": "user", "content": CONFIDENCE_QUESTION},
    ]
    assert (body["max_tokens"], body["temperature"], body["top_k"]) == (64, 0.6, 7)
    assert "logprobs" not in body


def test_a_reply_to_a_response_of_unknown_sampling() -> None:
    def ask(url: str) -> None:
        rows = [(trajectory(sampling=None), "2 + 2?")]
        reply_all(rows, setup(url), keep=lambda _: None)

    assert not {"temperature", "top_p", "top_k"} & asked(ask).keys()


def test_a_reply_draws_other_numbers_than_its_response() -> None:
    one = job()
    first = asked_for(one)["seed"]
    rows = [(trajectory(one.key), "2 + 2?")]
    body = asked(lambda url: reply_all(rows, setup(url), keep=lambda _: None))
    assert body["seed"] != first


def test_replies() -> None:
    rows = [
        (FAILED_TRAJECTORY, "a?"),
        (EMPTY_TRAJECTORY, "b?"),
        (trajectory("k3"), "c?"),
        (trajectory("k4"), "d?"),
    ]
    kept: list[Replied] = []

    def script(name: str, _number: int, _request: Request) -> Step:
        return refuse(500, "oops") if name == "d?" else ok(chat("\\boxed{9}", token_ids=[1, 2]))

    with ScriptedServer(
        script, name_of=lambda request: request.body["messages"][1]["content"]
    ) as server:
        settings = setup(server.base_url, prompt_price=1.0, completion_price=1.0)
        reply_all(rows, settings, keep=kept.extend)
        assert dict(server.calls) == {"c?": 1, "d?": 4}
    by_key = {replied.reply.key: replied for replied in kept}
    assert len(kept) == 4
    for key, word in (("k1", "failed"), ("k2", "is empty")):
        reply = by_key[key].reply
        assert by_key[key].call is None
        assert (reply.model, reply.text, reply.finish_reason) == ("gen", "", "failed")
        assert word in (reply.reason or "")
    good, bad = by_key["k3"], by_key["k4"]
    assert (good.reply.text, good.reply.token_ids) == ("\\boxed{9}", (1, 2))
    assert (good.reply.finish_reason, good.reply.reason) == ("stop", None)
    assert good.call is not None
    assert (good.call.purpose, good.call.cost) == ("reply", pytest.approx(18 / 1e6))
    assert bad.call is not None
    assert (bad.call.attempts, bad.reply.finish_reason) == (4, "failed")
    assert bad.reply.reason == bad.call.reason
    assert "oops" in (bad.reply.reason or "")


def test_a_reply_of_no_tokens() -> None:
    with pytest.raises(UsageError, match="0 tokens"):
        reply_all([], setup("http://127.0.0.1:1/v1"), max_tokens=0, keep=lambda _: None)


def test_a_question_that_json_must_escape() -> None:
    odd = 'He said "\\frac{1}{2}"\n\u2028 \U0001f600 </s>'
    one = job(problem=Problem("p", "sums", odd, None))
    body = asked_for(one)
    assert body["messages"][-1]["content"] == odd
    assert json.loads(json.dumps(body)) == body
