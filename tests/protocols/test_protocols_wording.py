r"""The words of protocols as data: divtok's own to the letter, and those of a user's file."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from divtok.errors import ConfigError, DataError
from divtok.protocols import wording as wording_module
from divtok.protocols.encode import follow_up_ids, prompt_ids, response_ids
from divtok.protocols.extract import extract_answer
from divtok.protocols.given import protocol_in, protocol_named, read_wording
from divtok.protocols.prompts import follow_up_for, messages_for
from divtok.protocols.protocol import PROTOCOLS, said_of
from divtok.protocols.wording import Wording, kind_of, own_wording
from divtok.records import Problem, trajectory_key
from divtok.strict_yaml import MAX_YAML_BYTES

STEPS = "Please reason step by step, and "
LAST_LINE = STEPS + "end with one more line that "
SYSTEM = {
    "cot": STEPS + r"put your final answer within \boxed{}.",
    "hashes": LAST_LINE + "holds #### and your final answer: #### ANSWER",
    "json": STEPS + "end with your final answer as JSON in a block of code: ```json ANSWER ```",
    "letter": LAST_LINE
    + "holds the letter of the option you choose and nothing else: Answer: LETTER",
    "sentence": LAST_LINE + "gives your final answer and nothing else: The answer is ANSWER.",
    "text": LAST_LINE + "holds your final answer and nothing else: Answer: TEXT",
}
FORM = "a value or a short exact expression in the form the question asks for, not a sentence."
USER = {
    "verbalized": "Question: 1 {x} 2?\n\n"
    f"Reason step by step to your answer: {FORM} Then weigh how likely it is to be right. End with "
    "one JSON object that gives the answer and your confidence in it, from 0 to 1:\n"
    '{"final_answer": "your answer", "confidence": "0-1"}',
    "verbalized_top2": "Question: 1 {x} 2?\n\n"
    "Reason step by step to your 2 best answers and the probability that each is right. An answer "
    f"is {FORM} End with one JSON array:\n"
    '[{"candidate": "most likely answer", "confidence": "0-1"}, '
    '{"candidate": "second most likely answer", "confidence": "0-1"}]',
    "verbalized_distribution": "Question: 1 {x} 2?\n\n"
    "Reason step by step to your answer. You may propose several possible answers, at most four, "
    f"each {FORM} Weigh how likely each is to be right, and always include "
    '"None of the above". End with one JSON array whose confidences sum to 1:\n'
    '[{"candidate": "first answer", "confidence": "0-1"}, '
    '{"candidate": "second answer", "confidence": "0-1"}, '
    '{"candidate": "None of the above", "confidence": "0-1"}]',
}
FOLLOW_UP = (
    "How sure are you that your answer is right? Give an integer from 0 (not at all) to 10 "
    r"(certain) within \boxed{}."
)
MINE = """
kind: cot
system: Think, then box it.
user: "Here it is: {question}"
follow_up: Rate it.
"""


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("protocol", SYSTEM)
def test_own_words_with_a_system_prompt_are_what_they_were(protocol: str) -> None:
    assert messages_for("1 {x} 2?", protocol=protocol) == [
        {"role": "system", "content": SYSTEM[protocol]},
        {"role": "user", "content": "1 {x} 2?"},
    ]
    assert own_wording(protocol).follow_up == FOLLOW_UP == follow_up_for(protocol)


@pytest.mark.parametrize("protocol", USER)
def test_own_words_that_ask_for_a_confidence_are_what_they_were(protocol: str) -> None:
    assert messages_for("1 {x} 2?", protocol=protocol) == [
        {"role": "user", "content": USER[protocol]}
    ]
    assert own_wording(protocol).follow_up is None


def test_every_protocol_of_divtok_has_its_words_as_data() -> None:
    own = [p for p in PROTOCOLS if PROTOCOLS.origin(p.name) == "divtok"]
    assert {p.name for p in own} == {*SYSTEM, *USER}
    for protocol in own:
        assert protocol.wording is not None
        assert protocol.wording.kind == protocol.wording.name == protocol.name
        assert protocol_in(protocol.wording) == protocol.name
    assert len({p.wording.hash for p in own if p.wording is not None}) == len(own)


def test_a_file_changes_what_is_asked_and_nothing_else(tmp_path: Path) -> None:
    words = read_wording(written(tmp_path, MINE))
    protocol = protocol_in(words)
    assert protocol == f"cot@{words.hash}"
    assert words.name == "mine"
    assert messages_for("2 + 2?", protocol=protocol) == [
        {"role": "system", "content": "Think, then box it."},
        {"role": "user", "content": "Here it is: 2 + 2?"},
    ]
    assert follow_up_for(protocol) == "Rate it."
    assert kind_of(protocol) == "cot"
    assert extract_answer(r"So \boxed{4}.", protocol) == "4"
    assert extract_answer(r"So \boxed{4}.", tmp_path / "mine.yaml") == "4"
    assert protocol_named(str(tmp_path / "mine.yaml")) == protocol
    mine, cot = PROTOCOLS.get(protocol), PROTOCOLS.get("cot")
    assert (mine.find_answer, mine.grader, mine.no_answer) == (
        cot.find_answer,
        cot.grader,
        cot.no_answer,
    )


def test_the_words_make_the_hash_and_the_key_not_the_name(tmp_path: Path) -> None:
    words = read_wording(written(tmp_path, MINE))
    same = read_wording(written(tmp_path, f"name: other\nsource: me{MINE}", "b.yaml"))
    other = read_wording(written(tmp_path, MINE.replace("Think", "Reason"), "c.yaml"))
    assert same.hash == words.hash != other.hash
    problem = Problem("1", "sums", "2 + 2?", "4")
    keys = [
        trajectory_key(problem, generator="g", protocol=name, sampling=None, sample=0)
        for name in ("cot", protocol_in(words), protocol_in(same), protocol_in(other))
    ]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 3
    # Its own words are in no key: sha256 of ["sums","1","2 + 2?","g","cot",null,0].
    assert keys[0] == "41580b903559de5e8e893500"


def test_words_equal_to_the_own_ones_are_the_own_ones(tmp_path: Path) -> None:
    text = Path(wording_module.__file__).with_name("kinds").joinpath("verbalized.yaml").read_text()
    assert protocol_named(written(tmp_path, text, "copy.yaml")) == "verbalized"


def test_the_question_after_the_answer_is_the_kinds_unless_it_is_given(tmp_path: Path) -> None:
    text = "kind: hashes\nuser: '{question} Go.'\n"
    assert read_wording(written(tmp_path, text)).follow_up == FOLLOW_UP
    stated = read_wording(written(tmp_path, text.replace("hashes", "verbalized")))
    assert stated.follow_up is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user: '{question}'", "'kind' is missing"),
        ("kind: cot", "'user' is missing"),
        ("kind: cot\nuser: Solve {problem}", "{question} is missing in 'user'"),
        ("kind: cot\nuser: '{question}'\nsytem: x", "unknown key 'sytem'"),
        ("kind: cot\nuser: '{question}'\nsystem: ' '", "'system' is blank"),
        ("kind: cot\nuser: '{question}'\nsystem: Solve {question}", "only 'user' can have"),
        ("kind: cott\nuser: '{question}'", "unknown protocol 'cott'. Did you mean 'cot'"),
        ("kind: cot\nname: letter\nuser: '{question}'", "'letter' is the name of a protocol"),
        ("kind: cot\nname: a b\nuser: '{question}'", "name 'a b' is not made of letters"),
        ("kind: verbalized\nuser: '{question}'\nfollow_up: Sure?", "nothing is asked after it"),
        ("kind: cot\nuser: '{question}'\nsource: " + "x" * 201, "at most 200 characters"),
        ("kind: cot\nuser: 3", "user = 3"),
        ("- kind", "not a mapping"),
        ("#" * (MAX_YAML_BYTES + 1), "bytes"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        read_wording(file)
    assert said in str(refused.value)
    assert "mine.yaml" in str(refused.value)


def test_words_that_are_not_known_are_said_to_be_so() -> None:
    with pytest.raises(DataError, match=r"words of the protocol 'cot@0000'"):
        messages_for("2 + 2?", protocol="cot@0000")
    assert extract_answer(r"\boxed{4}", "cot@0000") == "4"


def test_words_are_known_where_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = pickle.dumps(Wording("sent", "cot", "{question}, please", follow_up="Sure?"))
    monkeypatch.setattr(wording_module, "_by_hash", {})
    arrived = pickle.loads(sent)
    asked = messages_for("2 + 2?", protocol=f"cot@{arrived.hash}")
    assert asked == [{"role": "user", "content": "2 + 2?, please"}]


def test_what_is_said_of_words(tmp_path: Path) -> None:
    words = read_wording(written(tmp_path, f"source: Figure 0{MINE}"))
    own = own_wording("hashes")
    assert said_of(protocol_in(words)) == f"cot {words.hash[:8]}, the user's 'mine' (Figure 0)"
    assert said_of("hashes") == f"hashes {own.hash[:8]}, divtok's own"


def test_ids_ask_in_the_words_of_the_file(tmp_path: Path) -> None:
    from divtok.models.load import load_tokenizer

    tokenizer = load_tokenizer("divtok/tiny-0.3m")
    protocol = protocol_named(written(tmp_path, MINE))
    asked = prompt_ids(tokenizer, "2 + 2?", protocol=protocol)
    assert "Here it is: 2 + 2?" in tokenizer.decode(asked)
    further = follow_up_ids(
        tokenizer,
        "2 + 2?",
        prompt=asked,
        response=response_ids(tokenizer, "4"),
        end_ids=(),
        protocol=protocol,
    )
    assert "Rate it." in tokenizer.decode(further[len(asked) :])


@pytest.mark.parametrize("page", ["paper.md", "reference/protocols-and-graders.md"])
def test_the_example_of_the_documentation_is_one(tmp_path: Path, page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    [example] = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    words = read_wording(written(tmp_path, example))
    assert words.kind == "verbalized"
    assert "{question}" not in messages_for("2 + 2?", protocol=protocol_in(words))[0]["content"]
    if page == "paper.md":
        assert f"`verbalized {words.short_hash}, the user's 'figure-6'" in text
        assert f"`Wording: {said_of('cot')}.`" in text
