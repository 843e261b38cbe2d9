"""Traces from servers: what weights give lies within the bounds, and wrong servers are refused."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from model_server import ModelServer, Refused

from divtok.endpoints.client import ServerClient
from divtok.endpoints.settings import ServerSettings
from divtok.errors import ModelError, ServerError, UsageError
from divtok.generate.jobs import Job, generate_batch
from divtok.models.load import LoadedModel, load_model
from divtok.problems.benchmark import load_benchmark
from divtok.records import PER_TOKEN_FIELDS, Sampling, Trace, Trajectory
from divtok.trace.pair import load_pair
from divtok.trace.topk.server_model import load_server_model
from divtok.trace.topk.server_pair import ServerPair, load_server_pair

P, Q = "divtok/tiny-0.9m", "divtok/tiny-0.3m"
WIDTH_P = 832
THETA = 0.05


def settings(server: ModelServer, **options: Any) -> ServerSettings:
    return ServerSettings(server.base_url, max_attempts=2, first_wait_s=0.01, **options)


@pytest.fixture(scope="session")
def models() -> tuple[LoadedModel, LoadedModel]:
    return load_model(P, device="cpu"), load_model(Q, device="cpu")


@pytest.fixture(scope="session")
def servers(models: Any) -> Iterator[tuple[ModelServer, ModelServer]]:
    with ModelServer(models[0]) as p, ModelServer(models[1]) as q:
        yield p, q


@pytest.fixture(scope="session")
def trajectories(models: Any) -> list[Trajectory]:
    problems = load_benchmark("arith-medium", limit=4)
    jobs = [Job(problem, 0, P, "cot", Sampling(max_length=300)) for problem in problems]
    return generate_batch(models[0], jobs)


@pytest.fixture(scope="session")
def exact(trajectories: Any) -> list[Trace]:
    return load_pair(P, Q, p_device="cpu", q_device="cpu").trace_batch(trajectories)


@pytest.fixture(scope="session")
def beginning(models: Any, trajectories: Any) -> Trajectory:
    """A few tokens, for answers that list everything."""
    ids = trajectories[0].token_ids[:20]
    return replace(trajectories[0], token_ids=ids, text=models[0].tokenizer.decode(ids))


@pytest.fixture(scope="session")
def exact_beginning(beginning: Trajectory) -> list[Trace]:
    return load_pair(P, Q, p_device="cpu", q_device="cpu").trace_batch([beginning])


def connect(servers: Sequence[ModelServer], **options: Any) -> ServerPair:
    p, q = servers
    return load_server_pair(P, Q, p_server=settings(p), q_server=settings(q), **options)


@pytest.fixture(scope="session")
def pair(servers: Any) -> ServerPair:
    return connect(servers)


def bounds(traces: Sequence[Trace]) -> tuple[Any, Any]:
    lows, highs = zip(*((t.jsd_low_bits, t.jsd_high_bits) for t in traces), strict=True)
    return np.concatenate(lows), np.concatenate(highs)


def certified_share(low: Any, high: Any, theta: float) -> float:
    """The share of tokens of which it is sure on which side of theta they lie."""
    return float(np.mean((low > theta) | (high <= theta)))


def assert_within(traces: Sequence[Trace], exact: Sequence[Trace]) -> None:
    """Within rounding: `Pair` sums up in float32, and batches of another shape have other noise."""
    for trace, truth in zip(traces, exact, strict=True):
        assert (trace.status, trace.exact, trace.key) == ("ok", False, truth.key)
        low, high = trace.jsd_low_bits, trace.jsd_high_bits
        assert low is not None
        assert high is not None
        assert low.dtype == high.dtype == np.float32
        assert (truth.jsd_bits >= low - 2e-6).all()
        assert (truth.jsd_bits <= high + 2e-6).all()
        assert (low <= trace.jsd_bits).all()
        assert (trace.jsd_bits <= high).all()
        assert (low > THETA).sum() <= (truth.jsd_bits > THETA).sum() <= (high > THETA).sum()


def test_traces_from_weights_lie_within_the_bounds(
    pair: ServerPair, trajectories: Any, exact: Any
) -> None:
    traces = pair.trace_batch(trajectories)
    assert_within(traces, exact)
    assert max(t.jsd_bits.max() for t in exact) > 0.2  # the pair disagrees somewhere
    for trace, truth in zip(traces, exact, strict=True):
        assert (trace.p, trace.q) == (P, Q)
        assert np.isnan(trace.dropped_mass_p)  # p has more tokens than q
        assert trace.dropped_mass_q == 0.0
        for name in ("answer_start", "answer_stop", "turn_end"):
            assert getattr(trace, name) == getattr(truth, name)
        for name in ("logprob_p", "logprob_q"):
            np.testing.assert_allclose(getattr(trace, name), getattr(truth, name), atol=2e-3)
        for name in ("entropy_p", "entropy_q", "kl_pq", "kl_qp"):
            assert np.isnan(getattr(trace, name)).all()
        assert {getattr(trace, name).dtype for name in PER_TOKEN_FIELDS} == {np.dtype(np.float32)}
    assert certified_share(*bounds(traces), THETA) > 0.95


def test_more_likely_tokens_narrow_the_bounds_down_to_the_exact_trace(
    servers: Any, beginning: Trajectory, exact_beginning: list[Trace]
) -> None:
    rows, truths = [beginning], exact_beginning
    before: tuple[Any, Any] | None = None
    for top_k in (1, 5, 20, 100):
        traces = connect(servers, top_k=top_k).trace_batch(rows)
        assert_within(traces, truths)
        low, high = bounds(traces)
        if before is not None:
            # Rounding of the listed log-probs may move each bound by some 1e-6.
            assert (low >= before[0] - 1e-5).all()
            assert (high <= before[1] + 1e-5).all()
            assert (high - low).mean() < (before[1] - before[0]).mean()
        before = low, high
    for trace, truth in zip(connect(servers, top_k=WIDTH_P).trace_batch(rows), truths, strict=True):
        assert trace.exact
        assert trace.jsd_low_bits is None
        assert trace.jsd_high_bits is None
        np.testing.assert_allclose(trace.jsd_bits, truth.jsd_bits, atol=5e-6)
        for name in PER_TOKEN_FIELDS:
            np.testing.assert_allclose(
                getattr(trace, name), getattr(truth, name), atol=2e-4, rtol=1e-4
            )
        assert trace.dropped_mass_p == pytest.approx(truth.dropped_mass_p, rel=1e-3)
        assert trace.dropped_mass_q == truth.dropped_mass_q == 0.0


@pytest.mark.parametrize("keys", ["ids", "texts"])
def test_echo_gives_the_same_bounds(
    models: Any, pair: ServerPair, trajectories: Any, exact: Any, keys: str
) -> None:
    known: dict[str, Any] = {"prompt_logprobs": False, "token_id_keys": keys == "ids"}
    with ModelServer(models[0], **known) as p, ModelServer(models[1], **known) as q:
        other = connect((p, q))
        assert {model.asker.form for model in (other.p, other.q)} == {"echo"}
        traces = other.trace_batch(trajectories[:2])
    assert_within(traces, exact[:2])
    usual = pair.trace_batch(trajectories[:2])
    (low, high), (usual_low, usual_high) = bounds(traces), bounds(usual)
    # Without ranks, a token that is the last one listed may be listed only for having come; and
    # texts that name several tokens are left out.
    assert (low <= usual_low + 1e-6).all()
    assert (high >= usual_high - 1e-6).all()
    same = np.isclose(low, usual_low, atol=1e-6) & np.isclose(high, usual_high, atol=1e-6)
    assert same.mean() > (0.9 if keys == "ids" else 0.5)


def test_forms_can_be_chosen(servers: Any) -> None:
    chosen = load_server_model(P, settings(servers[0]), form="echo")
    assert chosen.asker.form == "echo"
    path, body = servers[0].asked[-1]
    assert (path, body["max_tokens"], body["temperature"]) == ("/v1/completions", 1, 1.0)
    with ModelServer(servers[1].loaded, prompt_logprobs=False, echo=False) as neither:
        for form in ("prompt_logprobs", "auto"):
            with pytest.raises(ServerError, match="no log-probs of prompts"):
                load_server_model(Q, settings(neither), form=form)


def test_a_server_that_refuses_unknown_wishes_is_asked_without(models: Any) -> None:
    class Strict(ModelServer):
        def complete(self, body: dict[str, Any]) -> dict[str, Any]:
            if {"prompt_logprobs", "return_tokens_as_token_ids"} & body.keys():
                raise Refused(400, "unknown parameter")
            return super().complete(body)

    with Strict(models[1]) as server:
        assert load_server_model(Q, settings(server)).asker.form == "echo_texts"


@pytest.mark.parametrize("form", ["prompt_logprobs", "echo"])
@pytest.mark.parametrize(("late", "words"), [(1, "one token late"), (-1, "one token early")])
def test_shifted_servers_are_refused(models: Any, form: Any, late: int, words: str) -> None:
    with (
        ModelServer(models[1], late=late) as server,
        pytest.raises(ServerError, match=words),
    ):
        load_server_model(Q, settings(server), form=form)


def test_a_server_that_is_further_off_is_refused(models: Any) -> None:
    with (
        ModelServer(models[1], late=2) as server,
        pytest.raises(ServerError, match="cannot be told"),
    ):
        load_server_model(Q, settings(server))


def test_shifted_log_probs_of_the_tokens_alone_are_refused(models: Any) -> None:
    """The lists stand right, only the tokens' own numbers do not."""

    class Mixed(ModelServer):
        def complete(self, body: dict[str, Any]) -> dict[str, Any]:
            answer = super().complete(body)
            logprobs = answer["choices"][0]["logprobs"]
            if body.get("echo"):
                own = logprobs["token_logprobs"]
                logprobs["token_logprobs"] = [None, None, *own[1:-1]]
            return answer

    with Mixed(models[1]) as server, pytest.raises(ServerError, match=r"the token itself|own list"):
        load_server_model(Q, settings(server), form="echo")


def test_an_unsteady_server_is_refused(models: Any) -> None:
    class Unsteady(ModelServer):
        def complete(self, body: dict[str, Any]) -> dict[str, Any]:
            self.late = (self.late + 1) % 2
            return super().complete(body)

    with (
        Unsteady(models[1]) as server,
        pytest.raises(ServerError, match="one text in two ways"),
    ):
        load_server_model(Q, settings(server))


@pytest.mark.parametrize("rounded", ["bf16", 3])
def test_rounded_servers_are_accepted_with_wider_bounds(
    models: Any,
    pair: ServerPair,
    trajectories: Any,
    exact: Any,
    beginning: Trajectory,
    exact_beginning: Any,
    rounded: Any,
) -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(ModelServer(m, rounded=rounded)) for m in models]
        traces = connect(both).trace_batch(trajectories[:2])
        everything = connect(both, top_k=WIDTH_P).trace_batch([beginning])
    assert_within(traces, exact[:2])
    low, high = bounds(traces)
    usual_low, usual_high = bounds(pair.trace_batch(trajectories[:2]))
    assert (high - low).mean() > (usual_high - usual_low).mean() + 1e-4
    assert_within(everything, exact_beginning)  # all is listed, and still not exact


@pytest.mark.parametrize(("rounded", "stated"), [("bf16", "bfloat16"), (3, 0.0005)])
def test_a_stated_precision_narrows_the_bounds(
    models: Any, beginning: Trajectory, exact_beginning: Any, rounded: Any, stated: Any
) -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(ModelServer(m, rounded=rounded)) for m in models]
        told = connect(both, precision=stated).trace_batch([beginning])
        found = connect(both).trace_batch([beginning])
    assert_within(told, exact_beginning)
    (low, high), (wide_low, wide_high) = bounds(told), bounds(found)
    assert (high - low).mean() < (wide_high - wide_low).mean()


@pytest.mark.parametrize("coarse", ["top_logprobs", "token_logprobs"])
def test_a_server_that_rounds_one_of_lists_and_tokens_is_seen_through(
    models: Any, beginning: Trajectory, exact_beginning: Any, coarse: str
) -> None:
    class Mixed(ModelServer):
        def complete(self, body: dict[str, Any]) -> dict[str, Any]:
            answer = super().complete(body)
            told = answer["choices"][0]["logprobs"]
            if coarse == "token_logprobs":
                told[coarse] = [None if own is None else round(own, 2) for own in told[coarse]]
            else:
                told[coarse] = [
                    None if top is None else {name: round(value, 2) for name, value in top.items()}
                    for top in told[coarse]
                ]
            return answer

    with Mixed(models[0]) as p, Mixed(models[1]) as q:
        mixed = connect((p, q), form="echo")
        traces = mixed.trace_batch([beginning])
    assert mixed.p.rounding.absolute > 0.005
    assert_within(traces, exact_beginning)


def test_a_server_that_contradicts_itself_is_refused(models: Any) -> None:
    class Contradicting(ModelServer):
        def complete(self, body: dict[str, Any]) -> dict[str, Any]:
            answer = super().complete(body)
            told = answer["choices"][0]["logprobs"]
            own = told["token_logprobs"]
            told["token_logprobs"] = [None if x is None else x * 0.99 for x in own]
            return answer

    with (
        Contradicting(models[1]) as server,
        pytest.raises(ServerError, match=r"contradicts itself \(two log-probs of one token"),
    ):
        load_server_model(Q, settings(server), form="echo")


def test_bounds_hold_where_only_tokenizers_are_known(
    servers: Any, models: Any, beginning: Trajectory, exact_beginning: Any
) -> None:
    alone = [model.tokenizer for model in models]
    neither = connect(servers, p_tokenizer=alone[0], q_tokenizer=alone[1])
    (trace,) = neither.trace_batch([beginning])
    assert_within([trace], exact_beginning)
    assert np.isnan([trace.dropped_mass_p, trace.dropped_mass_q]).all()


def test_ids_alone_have_the_same_trace(pair: ServerPair, beginning: Trajectory) -> None:
    (expected,) = pair.trace_batch([beginning])
    ids: dict[str, Any] = {"prompt_ids": beginning.prompt_ids, "token_ids": beginning.token_ids}
    for text in (None, beginning.text):
        trace = pair.trace_ids(**ids, key=beginning.key, text=text)
        assert (trace.key, trace.status) == (expected.key, "ok")
        assert (trace.answer_start, trace.answer_stop) == (
            expected.answer_start,
            expected.answer_stop,
        )
        np.testing.assert_array_equal(trace.jsd_low_bits, expected.jsd_low_bits)
        np.testing.assert_array_equal(trace.jsd_high_bits, expected.jsd_high_bits)
    assert pair.trace_ids(prompt_ids=beginning.prompt_ids, token_ids=()).status == "empty"


def test_every_row_has_its_trace_in_order(
    models: Any, trajectories: Sequence[Trajectory], servers: Any
) -> None:
    lengths = [len(t.prompt_ids) + len(t.token_ids) for t in trajectories[:3]]
    limit = max(lengths) - 1
    empty = replace(trajectories[0], key="empty", token_ids=(), text="")
    with ModelServer(models[1], max_model_len=limit + 1) as short:
        traces = connect((servers[0], short)).trace_batch([empty, *trajectories[:3]])
    assert [t.key for t in traces] == ["empty", *(t.key for t in trajectories[:3])]
    fits = [length <= limit for length in lengths]
    assert [t.status for t in traces] == ["empty", *("ok" if fit else "too_long" for fit in fits)]
    assert any(fits)
    long = next(t for t in traces if t.status == "too_long")
    assert long.reason is not None
    assert f"{Q} reads {limit}" in long.reason
    assert len(long) == 0


def test_a_row_without_an_answer_is_kept_as_failed(
    models: Any, servers: Any, trajectories: Sequence[Trajectory]
) -> None:
    with ModelServer(models[1]) as breaking:
        broken = connect((servers[0], breaking))
        breaking.broken_after = breaking.scored + 1
        traces = replace_concurrency(broken, 1).trace_batch(trajectories[:3])
    assert [t.status for t in traces] == ["ok", "failed", "failed"]
    assert traces[1].reason is not None
    assert Q in traces[1].reason
    assert "the model is gone" in traces[1].reason


def replace_concurrency(pair: ServerPair, concurrency: int) -> ServerPair:
    p, q = (
        replace(model, settings=replace(model.settings, concurrency=concurrency))
        for model in (pair.p, pair.q)
    )
    return ServerPair(p, q)


def test_one_server_for_both_models(models: Any, trajectories: Any) -> None:
    """p and q may share a server; there a pair of a model with itself never disagrees."""
    with ModelServer(models[1]) as server:
        same = settings(server, concurrency=1)
        both = load_server_pair(Q, Q, p_server=same, q_server=same)
        (trace,) = both.trace_batch(trajectories[:1])
    assert trace.jsd_low_bits is not None
    assert trace.jsd_low_bits.max() == 0.0


@pytest.mark.parametrize("concurrency", [1, 3])
def test_one_server_gets_as_many_calls_at_once_as_it_takes(
    models: Any, beginning: Trajectory, concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fewer, and no more: a call that waits for a connection loses the time it has."""
    busy: list[int] = []
    at_once: list[int] = []
    post = ServerClient.post

    async def counted(client: ServerClient, *args: Any, **options: Any) -> Any:
        assert client.settings.concurrency == concurrency
        busy.append(1)
        at_once.append(len(busy))
        try:
            return await post(client, *args, **options)
        finally:
            busy.pop()

    rows = [replace(beginning, key=f"{i}") for i in range(3)]
    with ModelServer(models[1]) as server:
        same = settings(server, concurrency=concurrency)
        both = load_server_pair(Q, Q, p_server=same, q_server=same)
        monkeypatch.setattr(ServerClient, "post", counted)
        traces = both.trace_batch(rows)
    assert [trace.status for trace in traces] == ["ok"] * 3
    assert len(at_once) == 6
    assert max(at_once) == concurrency


def test_numbers_that_are_no_distribution_are_told_with_their_place(
    models: Any, servers: Any, trajectories: Sequence[Trajectory]
) -> None:
    row = trajectories[0]
    place = len(row.prompt_ids) + 4

    class Overflowing(ModelServer):
        def complete(self, body: dict[str, Any]) -> dict[str, Any]:
            answer = super().complete(body)
            entries = answer["choices"][0].get("prompt_logprobs") or []
            if len(entries) == len(row.prompt_ids) + len(row.token_ids):
                for entry in entries[place].values():
                    entry["logprob"] = -0.1
            return answer

    with Overflowing(models[1]) as q:
        (trace,) = connect((servers[0], q)).trace_batch([row])
    assert trace.status == "nonfinite"
    assert trace.reason is not None
    assert f"{Q} are no distribution" in trace.reason
    assert f"response token 4 of {len(row.token_ids)}" in trace.reason


def test_too_many_likely_tokens_are_refused_in_the_servers_words(models: Any) -> None:
    with ModelServer(models[1], max_logprobs=20) as server:
        assert load_server_model(Q, settings(server), top_k=20).context_length == 1023
        with pytest.raises(ServerError, match="Requested logprobs of 21, at most 20"):
            load_server_model(Q, settings(server), top_k=21)


def test_a_model_of_another_name_is_taken_only_when_told(models: Any) -> None:
    with ModelServer(models[1], name="something-else") as server:
        with pytest.raises(ServerError, match="it has: something-else") as refused:
            load_server_model(Q, settings(server))
        assert f"served_names.{Q}=NAME" in str(refused.value)
        found = load_server_model(Q, settings(server), served_name="something-else")
    assert (found.name, found.asker.model) == (Q, "something-else")


def test_one_model_is_no_pair(models: Any) -> None:
    with ModelServer(models[1]) as server, pytest.raises(UsageError, match="one and the same"):
        load_server_pair(
            P,
            Q,
            p_server=settings(server),
            q_server=settings(server),
            p_served_name=server.name,
        )


def test_a_model_that_is_not_there_is_refused_with_those_that_are(models: Any) -> None:
    class Two(ModelServer):
        def models(self) -> dict[str, Any]:
            return {"data": [{"id": "one"}, {"id": "two"}]}

    class None_(ModelServer):
        def models(self) -> dict[str, Any]:
            return {"data": None}

    with Two(models[1]) as server, pytest.raises(ServerError, match=f"'{Q}'; it has: one, two"):
        load_server_model(Q, settings(server))
    with None_(models[1]) as server, pytest.raises(ServerError, match="it has: none at all"):
        load_server_model(Q, settings(server))


def test_names_of_a_servers_models_are_made_fit_to_be_shown(
    models: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hostile(ModelServer):
        def models(self) -> dict[str, Any]:
            return {"data": [{"id": "\x1b[2Jred\n"}, {"id": "key sk-0123456789abcdef"}]}

    monkeypatch.setenv("SOME_KEY", "sk-0123456789abcdef")
    with Hostile(models[1]) as server:
        monkeypatch.setenv("DIVTOK_KEYS", f"{urlsplit(server.base_url).netloc}=SOME_KEY")
        with pytest.raises(ServerError, match=r"it has: red, key \*\*\*\."):
            load_server_model(Q, settings(server))


def test_the_next_step_fits_what_went_wrong(models: Any) -> None:
    class Stuck(ModelServer):
        def complete(self, body: dict[str, Any]) -> dict[str, Any]:
            time.sleep(1.0)
            return super().complete(body)

    class Garbled(ModelServer):
        def complete(self, body: dict[str, Any]) -> dict[str, Any]:
            return {"choices": []}

    for kind, words in ((Stuck, "more time"), (Garbled, "such as vLLM")):
        with kind(models[1]) as server, pytest.raises(ServerError) as caught:
            load_server_model(Q, settings(server, timeout_s=0.3), form="prompt_logprobs")
        assert caught.value.next_step is not None
        assert words in caught.value.next_step


def test_wrong_wishes_are_refused_before_a_server_is_asked() -> None:
    nowhere = ServerSettings("http://127.0.0.1:9/v1")
    with pytest.raises(UsageError, match="top_k is 0"):
        load_server_model(Q, nowhere, top_k=0)
    wrong: Any = "ecko"
    with pytest.raises(UsageError, match="Did you mean 'echo'"):
        load_server_model(Q, nowhere, form=wrong)


def test_ids_outside_the_vocabulary_are_refused(pair: ServerPair, trajectories: Any) -> None:
    assert pair.vocab_size == 784
    assert pair.context_length == 1023
    with pytest.raises(UsageError, match="Token id 784"):
        pair.trace_batch([replace(trajectories[0], token_ids=(784,))])


def test_a_pair_with_different_tokens_is_refused(servers: Any, models: Any) -> None:
    class Renamed:
        """The same ids under other names."""

        def __init__(self, tokenizer: Any) -> None:
            self._tokenizer = tokenizer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tokenizer, name)

        def __call__(self, *args: Any, **options: Any) -> Any:
            return self._tokenizer(*args, **options)

        def get_vocab(self) -> dict[str, int]:
            return {f"~{token}": i for token, i in self._tokenizer.get_vocab().items()}

    with pytest.raises(ModelError, match="do not share their vocabulary"):
        connect(servers, q_tokenizer=Renamed(models[1].tokenizer))


def test_a_tokenizer_may_be_given_as_such(servers: Any, models: Any) -> None:
    found = load_server_model(
        "p", settings(servers[0]), tokenizer=models[0].tokenizer, served_name=P
    )
    assert found.width is None
    assert found.end_ids == {2}
