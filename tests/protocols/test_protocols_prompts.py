"""The messages of each protocol: the question as it stands, and the form asked for."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.errors import UsageError
from divtok.protocols.prompts import CONFIDENCE_QUESTION, messages_for
from divtok.protocols.protocol import PROTOCOLS

SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."
STATED = ("verbalized", "verbalized_top2", "verbalized_distribution")
QUESTION = "What is 12 + 30?"


def asked(question: str, protocol: str) -> str:
    """The user's message, the only one of the protocols that state a confidence."""
    (message,) = messages_for(question, protocol=protocol)
    assert message["role"] == "user"
    return message["content"]


def form(protocol: str) -> object:
    """The JSON value that ends the prompt, as the model is to write it."""
    shape = re.search(r"^[\[{].*\Z", asked(QUESTION, protocol), re.MULTILINE | re.DOTALL)
    assert shape is not None
    return json.loads(shape[0])


def test_the_protocols_there_are() -> None:
    assert {"cot", *STATED} <= set(PROTOCOLS.names())
    assert [p.name for p in PROTOCOLS] == PROTOCOLS.names()
    assert all(p.summary.endswith(".") for p in PROTOCOLS)
    assert {name: PROTOCOLS.get(name).states_confidence for name in ("cot", *STATED)} == {
        "cot": False,
        **dict.fromkeys(STATED, True),
    }


def test_reasoning_alone_has_a_system_prompt_and_the_bare_question() -> None:
    system, user = messages_for(QUESTION)
    assert system == {"role": "system", "content": SYSTEM_PROMPT}
    assert "\\boxed{}" in SYSTEM_PROMPT
    assert user == {"role": "user", "content": QUESTION}
    assert messages_for(QUESTION, protocol="cot") == [system, user]


@pytest.mark.parametrize("protocol", STATED)
def test_stated_confidences_are_asked_for_with_the_question_and_never_in_a_box(
    protocol: str,
) -> None:
    content = asked(QUESTION, protocol)
    assert content.startswith(f"Question: {QUESTION}\n\n")
    assert content.count(QUESTION) == 1
    assert "step by step" in content
    assert "boxed" not in content


def test_one_answer_is_a_json_object() -> None:
    shape = form("verbalized")
    assert isinstance(shape, dict)
    assert list(shape) == ["final_answer", "confidence"]


@pytest.mark.parametrize(("protocol", "count"), [(STATED[1], 2), (STATED[2], 3)])
def test_several_answers_are_a_json_array_of_candidates(protocol: str, count: int) -> None:
    shape = form(protocol)
    assert isinstance(shape, list)
    assert [list(candidate) for candidate in shape] == [["candidate", "confidence"]] * count


def test_only_a_distribution_includes_none_of_the_above() -> None:
    shape = form("verbalized_distribution")
    assert isinstance(shape, list)
    assert shape[-1]["candidate"] == "None of the above"
    assert "sum to 1" in asked(QUESTION, "verbalized_distribution")
    assert "None of the above" not in asked(QUESTION, "verbalized_top2")


def test_the_further_question_asks_for_zero_to_ten_in_a_box() -> None:
    assert "from 0 " in CONFIDENCE_QUESTION
    assert "to 10 " in CONFIDENCE_QUESTION
    assert CONFIDENCE_QUESTION.endswith("\\boxed{}.")


@pytest.mark.parametrize("protocol", PROTOCOLS.names())
@pytest.mark.parametrize(
    "question",
    ["{question}", "a {question} b {question}", "{", "}}{{", "{0} {} {x!r}", "%s %(a)s", "\\g<0>"],
)
def test_braces_and_placeholders_in_a_question_stay_as_they_are(
    protocol: str, question: str
) -> None:
    before, after = messages_for("\x00", protocol=protocol)[-1]["content"].split("\x00")
    content = messages_for(question, protocol=protocol)[-1]["content"]
    assert content == before + question + after


@given(question=st.text(), protocol=st.sampled_from(PROTOCOLS.names()))
def test_any_question_is_asked_word_for_word(question: str, protocol: str) -> None:
    before, after = messages_for("\x00", protocol=protocol)[-1]["content"].split("\x00")
    content = messages_for(question, protocol=protocol)[-1]["content"]
    assert content == before + question + after


def test_an_unknown_protocol_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"Unknown protocol 'verbalised'\. Did you mean .*'verbal"):
        messages_for(QUESTION, protocol="verbalised")
