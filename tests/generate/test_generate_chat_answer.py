"""What is read out of a chat completion, and what is not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import chat

from divtok.endpoints.client import Unusable
from divtok.generate.chat_answer import read_answer, storable

THOUGHT = "4 is 2 + 2"


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("eos", "stop"),
        ("eos_token", "stop"),
        ("stop_sequence", "stop"),
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("max_output_tokens", "length"),
        ("max_completion_tokens", "length"),
        ("model_length", "length"),
        ("MAX_TOKENS", "length"),
        ("who knows", "unknown"),
    ],
)
def test_how_it_ended(said: str, finish: str) -> None:
    answer = read_answer(chat("x", said))
    assert (answer.text, answer.finish_reason, answer.reason) == ("x", finish, None)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize(
    ("content", "text"),
    [("4", f"{THOUGHT}\n\n4"), ("", THOUGHT), (None, THOUGHT)],
)
def test_reasoning_apart(field: str, content: str | None, text: str) -> None:
    answer = read_answer(chat(content, "length", message={field: THOUGHT}))
    assert (answer.text, answer.finish_reason, answer.reason) == (text, "length", None)


@pytest.mark.parametrize("nothing", [None, ""])
def test_no_reasoning_apart(nothing: str | None) -> None:
    message = {
        "reasoning_content": nothing,
        "reasoning": nothing,
        "tool_calls": [],
        "refusal": None,
    }
    assert read_answer(chat("4", message=message)).text == "4"


def test_an_empty_response_is_one() -> None:
    answer = read_answer(chat(""))
    assert (answer.text, answer.finish_reason, answer.reason) == ("", "stop", None)


RATHER_NOT = {"refusal": "I had rather not"}
OWN_ANSWERS: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "filter": (chat("half a", "content_filter"), "half a", "unknown", "content filter"),
    "filter of all": (chat(None, "content_filter"), "", "unknown", "content filter"),
    "tool ended": (chat("x", "tool_calls"), "x", "stop", "tool"),
    "function ended": (chat("x", "function_call"), "x", "stop", "function"),
    "tool": (chat(None, message={"tool_calls": [{"id": "1"}]}), "", "stop", "tool"),
    "function": (chat(None, message={"function_call": {"name": "f"}}), "", "stop", "function"),
    "refusal": (chat(None, message=RATHER_NOT), "I had rather not", "stop", "I had rather not"),
    "refusal beside content": (chat("no", message=RATHER_NOT), "no", "stop", "rather not"),
    "refusal after thought": (
        chat(None, message={**RATHER_NOT, "reasoning": THOUGHT}),
        f"{THOUGHT}\n\nI had rather not",
        "stop",
        "rather not",
    ),
    "null": (chat(None), "", "stop", "no content"),
    "null and no known end": (chat(None, "who knows"), "", "unknown", "no content"),
    "null and empty reasoning": (chat(None, message={"reasoning": ""}), "", "stop", "no content"),
}


@pytest.mark.parametrize("name", OWN_ANSWERS)
def test_no_common_response_is_the_models_own_all_the_same(name: str) -> None:
    given, text, finish_reason, reason = OWN_ANSWERS[name]
    given["choices"][0] |= {"token_ids": [1], "logprobs": {"content": [{"logprob": -1.0}]}}
    answer = read_answer(given)
    assert (answer.text, answer.finish_reason) == (text, finish_reason)
    assert reason in (answer.reason or "")
    # Tokens of a call or of what was held back are not those of the text.
    assert (answer.token_ids, answer.prompt_ids, answer.logprob) == ((), (), None)
    assert answer.no_logprob == answer.reason
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 11)


@pytest.mark.parametrize("word", ["length", "max_tokens", "model_length"])
@pytest.mark.parametrize("message", [{}, {"reasoning": ""}, {"tool_calls": []}])
def test_nothing_because_it_was_cut_off(word: str, message: dict[str, Any]) -> None:
    answer = read_answer(chat(None, word, message=message, token_ids=[1, 2]))
    assert (answer.text, answer.finish_reason, answer.reason) == ("", "length", None)
    assert (answer.token_ids, answer.completion_tokens) == ((), 11)


def test_a_cut_off_message_without_the_field() -> None:
    given = chat(None, "length")
    del given["choices"][0]["message"]["content"]
    assert read_answer(given).finish_reason == "length"


def test_content_in_parts() -> None:
    parts: Any = [
        {"type": "reasoning", "reasoning": THOUGHT},
        {"type": "text", "text": "It is"},
        {"type": "text", "text": "4."},
    ]
    answer = read_answer(chat(parts))
    assert (answer.text, answer.reason) == (f"{THOUGHT}\n\nIt is\n4.", None)


UNUSABLE: dict[str, Any] = {
    "null": None,
    "text": "hello",
    "list": [chat("x")],
    "empty": {},
    "error": {"error": {"message": "worker died"}},
    "no choices": {"choices": []},
    "choices null": {"choices": None},
    "choices an object": {"choices": {"0": "x"}},
    "choice null": {"choices": [None]},
    "no message": {"choices": [{"text": "x", "finish_reason": "stop"}]},
    "message text": {"choices": [{"message": "x", "finish_reason": "stop"}]},
    "message empty": {"choices": [{"message": {}, "finish_reason": "stop"}]},
    "content a number": chat(5),  # pyright: ignore[reportArgumentType]
    "content with an image": chat([{"type": "image_url"}]),  # pyright: ignore[reportArgumentType]
    "a part without text": chat([{"type": "text"}]),  # pyright: ignore[reportArgumentType]
    "a part that is none": chat(["x"]),  # pyright: ignore[reportArgumentType]
    "reasoning a list": chat("x", message={"reasoning": ["y"]}),
    "unfinished": chat("x", None),
    "ended with a number": chat("x", 1),  # pyright: ignore[reportArgumentType]
    "aborted": chat("x", "abort"),
    "out of resources": chat("x", "insufficient_system_resource"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_no_answer_at_all(name: str) -> None:
    with pytest.raises(Unusable):
        read_answer(UNUSABLE[name])


def test_the_error_in_an_answer_is_told() -> None:
    with pytest.raises(Unusable, match="worker died"):
        read_answer(UNUSABLE["error"])


GOOD_IDS: Any = [0, 5, 2**31 - 1]


def test_ids() -> None:
    answer = chat("x", token_ids=GOOD_IDS)
    assert read_answer(answer).token_ids == tuple(GOOD_IDS)
    assert read_answer(answer).prompt_ids == ()
    answer["prompt_token_ids"] = [3, 4]
    assert read_answer(answer).prompt_ids == (3, 4)
    in_choice = chat("x", token_ids=GOOD_IDS, prompt_token_ids=[8])
    assert read_answer(in_choice).prompt_ids == (8,)


@pytest.mark.parametrize(
    "ids", [None, "123", {}, [1, -1], [1, True], [1, 2.0], [1, "2"], [1, None], [1, 2**31], [[1]]]
)
def test_ids_that_are_none(ids: Any) -> None:
    answer = read_answer({**chat("x", token_ids=ids), "prompt_token_ids": ids})
    assert (answer.token_ids, answer.prompt_ids, answer.text) == ((), (), "x")


def logprobs(*pairs: tuple[Any, Any]) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": value} for token, value in pairs]}


def test_ids_in_the_names_of_tokens() -> None:
    answer = read_answer(chat("x", logprobs=logprobs(("token_id:7", -1.0), ("token_id:0", -2.0))))
    assert answer.token_ids == (7, 0)
    assert answer.logprob is not None
    assert answer.logprob.tolist() == [-1.0, -2.0]


@pytest.mark.parametrize("name", ["x", "token_id:", "token_id:-1", "token_id:99999999999", None, 7])
def test_one_name_that_is_no_id_spoils_them(name: Any) -> None:
    answer = read_answer(chat("x", logprobs=logprobs(("token_id:7", -1.0), (name, -2.0))))
    assert answer.token_ids == ()


def with_counts(completion_tokens: int | None, **choice: Any) -> dict[str, Any]:
    answer = chat("x", **choice)
    if completion_tokens is None:
        del answer["usage"]
    else:
        answer["usage"]["completion_tokens"] = completion_tokens
    return answer


TWO = logprobs(("a", -1.0), ("b", -0.5))
APART: dict[str, Any] = {"message": {"reasoning": THOUGHT}}


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        (with_counts(2, logprobs=TWO), True),
        (with_counts(3, logprobs=TWO), True),  # the end of the turn was counted
        (with_counts(4, logprobs=TWO), False),
        (with_counts(1, logprobs=TWO), False),
        (with_counts(None, logprobs=TWO), True),
        (with_counts(None, logprobs=TWO, **APART), False),
        (with_counts(2, logprobs=TWO, **APART), True),
        (with_counts(20, logprobs=TWO, **APART), False),
        (with_counts(20, logprobs=TWO, token_ids=[1, 2]), True),
        (with_counts(2, logprobs=TWO, token_ids=[1, 2, 3]), False),
        (with_counts(2, logprobs=TWO, token_ids=[1]), False),
    ],
)
def test_logprobs_are_for_every_token_or_not_at_all(answer: Any, given: bool) -> None:
    read = read_answer(copy.deepcopy(answer))
    assert (read.logprob is not None) is given
    assert ("every token" in (read.no_logprob or "")) is not given


@pytest.mark.parametrize(
    "value",
    [None, "-1", True, float("nan"), float("inf"), float("-inf"), 0.5, -1e300, [], {}],
)
def test_a_number_that_is_no_logprob_spoils_them(value: Any) -> None:
    answer = with_counts(2, logprobs=logprobs(("a", -1.0), ("b", value)), token_ids=[1, 2])
    read = read_answer(answer)
    assert read.logprob is None
    assert "cannot be a log-prob" in (read.no_logprob or "")
    assert (read.text, read.token_ids) == ("x", (1, 2))


@pytest.mark.parametrize(
    "odd", [None, [], "x", {"content": None}, {"content": "x"}, {"content": []}]
)
def test_odd_logprobs_count_as_not_given(odd: Any) -> None:
    read = read_answer(chat("x", logprobs=odd))
    assert (read.text, read.logprob, read.token_ids) == ("x", None, ())
    assert read.no_logprob == "the server gave no log-probs"


@given(st.text(st.characters(codec=None)))
def test_any_text_becomes_storable(text: str) -> None:
    stored = storable(text)
    assert stored.encode().decode() == stored
    assert "\x00" not in stored
    assert len(stored) == len(text)
    good = all(c != "\x00" and not "\ud800" <= c <= "\udfff" for c in text)
    assert (stored == text) is good


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
PLACES = [
    ("usage",),
    ("choices",),
    ("prompt_token_ids",),
    ("choices", 0),
    ("choices", 0, "message"),
    ("choices", 0, "message", "content"),
    ("choices", 0, "message", "reasoning"),
    ("choices", 0, "message", "refusal"),
    ("choices", 0, "message", "tool_calls"),
    ("choices", 0, "finish_reason"),
    ("choices", 0, "token_ids"),
    ("choices", 0, "logprobs"),
    ("choices", 0, "logprobs", "content"),
    ("choices", 0, "logprobs", "content", 0),
    ("choices", 0, "logprobs", "content", 0, "logprob"),
    ("choices", 0, "logprobs", "content", 0, "token"),
]


@given(st.sampled_from(PLACES), JSON)
def test_anything_anywhere_is_read_or_unusable(place: tuple[Any, ...], value: Any) -> None:
    """No other exception comes out, and what is read fits together."""
    answer = chat("x", token_ids=[1, 2], logprobs=copy.deepcopy(TWO))
    inner: Any = answer
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    try:
        read = read_answer(answer)
    except Unusable:
        return
    assert read.finish_reason != "failed"
    assert (read.logprob is None) == (read.no_logprob is not None)
    assert read.text.encode().decode() == read.text
    assert read.logprob is None or not read.token_ids or len(read.logprob) == len(read.token_ids)
