"""What holds of stated confidences whatever a response says, and how long hostile ones take."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import json_repair
import pytest
from grade_samples import candidates, read_stated
from hypothesis import example, given
from hypothesis import strategies as st

from divtok.protocols.escapes import unescape
from divtok.protocols.loose_json import MAX_CHARACTERS, MAX_DEPTH, MAX_STARTS, MAX_TOKENS
from divtok.protocols.stated import read_rating

PROTOCOLS = ("verbalized", "verbalized_top2", "verbalized_distribution")
protocols = st.sampled_from(PROTOCOLS)
# Brackets, quotes and half-written values, which is what goes wrong.
PIECES = (
    *"{}[]:,\"'“”`\\ \n$%-.x4",
    *('"final_answer"', '"candidate"', '"confidence"', "final_answer: ", "candidate: ", "null"),
    *("0.9", '"0.8"', "85%", r"\frac{1}{2}", '"t3"', "None of the above", '[{"candidate": "'),
    *('{"final_answer": "', '{"final_answer": "4", ', '[{"candidate": 4, "confidence": 0.9}, '),
)
responses = st.one_of(st.text(), st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
# Prose has no brackets that could start another value, and no backtick that ends a code block.
prose = st.text(st.characters(exclude_characters="{}[]`", exclude_categories=["Cs"]))
# Without control characters, which JSON escapes with the letters that LaTeX commands begin with.
answers = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
confidences = st.floats(0, 1)


def written(protocol: str, answer: str, confidence: float, *, ascii_only: bool) -> str:
    if protocol == "verbalized":
        value: Any = {"final_answer": answer, "confidence": confidence}
    else:
        value = [{"candidate": answer, "confidence": confidence}]
    return json.dumps(value, ensure_ascii=ascii_only)


@given(responses, protocols)
@example('{"final_answer": "4" "5" "confidence": "6" "7"}', "verbalized")
@example('[{"candidate": "4" {"confidence": 0.9}}', "verbalized_top2")
def test_any_text_gives_a_value_or_a_reason(text: str, protocol: str) -> None:
    stated = read_stated(text, protocol)
    value, reason = stated.statement.value, stated.statement.reason
    assert (value is None) != (reason is None)
    assert value is None or 0 <= value <= 1
    if stated.answer is None:
        assert value is None
        return
    raw = text[stated.answer.start : stated.answer.stop]
    assert raw
    assert raw == raw.strip()
    assert stated.answer.content in (raw, unescape(raw).strip())
    if "\\" not in raw:
        assert stated.answer.content == raw


@given(st.one_of(st.text(), st.text("0123456789./$%{} ").map(lambda s: f"\\boxed{{{s}}}")))
def test_any_reply_gives_a_rating_or_a_reason(text: str) -> None:
    statement = read_rating(text)
    assert (statement.value is None) != (statement.reason is None)
    assert statement.value in (None, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


@given(protocols, answers, confidences, st.booleans())
def test_good_json_is_read_as_json(
    protocol: str, answer: str, confidence: float, ascii_only: bool
) -> None:
    text = written(protocol, answer, confidence, ascii_only=ascii_only)
    stated = read_stated(text, protocol)
    if protocol == "verbalized_distribution" and answer.casefold().startswith("none of"):
        return
    assert stated.answer is not None
    assert stated.answer.content == answer.strip()
    assert json.loads(f'"{text[stated.answer.start : stated.answer.stop]}"').strip() == (
        answer.strip()
    )
    # A number of more digits than anybody states is not read at all.
    if len(json.dumps(confidence)) <= 20:
        assert stated.statement.value == confidence


@given(prose, prose, protocols, st.integers(0, 100))
def test_prose_around_good_json_changes_nothing(
    before: str, after: str, protocol: str, percent: int
) -> None:
    text = written(protocol, r"\frac{1}{2}", percent / 100, ascii_only=True)
    alone, around = read_stated(text, protocol), read_stated(before + text + after, protocol)
    assert alone.answer is not None
    assert around.answer is not None
    assert around.statement == alone.statement
    assert alone.statement.value == percent / 100
    assert around.answer.content == alone.answer.content == r"\frac{1}{2}"
    assert around.answer.start == alone.answer.start + len(before)
    assert around.answer.stop == alone.answer.stop + len(before)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 100)), min_size=1, max_size=6))
def test_the_first_of_the_highest_wins(pairs: list[tuple[int, int]]) -> None:
    text = candidates(*((f'"{answer}"', f'"{percent}%"') for answer, percent in pairs))
    highest = max(percent for _, percent in pairs)
    first = next(answer for answer, percent in pairs if percent == highest)
    for protocol in PROTOCOLS[1:]:
        stated = read_stated(text, protocol)
        assert stated.answer is not None
        assert stated.answer.content == str(first)
        assert stated.statement.value == highest / 100


@pytest.mark.parametrize("cut", range(1, 90))
def test_a_text_cut_anywhere_never_states_another_number(cut: int) -> None:
    objects = r'{"final_answer": "\\frac{12}{35}", "confidence": 0.125, "certain": "no"}'
    arrays = '[{"candidate": "12", "confidence": 0.25}, {"candidate": "34", "confidence": 0.75}]'
    for text, protocol, answer, confidence in (
        (objects, "verbalized", r"\frac{12}{35}", 0.125),
        (arrays, "verbalized_top2", "34", 0.75),
    ):
        stated = read_stated(text[:cut], protocol)
        # The first candidate is the answer as long as there is no sign of the second.
        allowed = [(answer, confidence), (answer, None), (None, None)]
        if cut <= text.find("}, {"):
            allowed += [("12", None)]
        if cut == text.find("}, {") + 1:
            allowed += [("12", 0.25)]
        found = stated.answer and stated.answer.content
        assert (found, stated.statement.value) in allowed


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("plain", "plain"),
        (r"a\\b", r"a\b"),
        (r"\/", "/"),
        (r"\"x\" \'y\'", "\"x\" 'y'"),
        (r"a\tb\nc", "a\tb\nc"),
        (r"\u0041\u00e9", "Aé"),
        (r"\beta", r"\beta"),
        (r"\\beta", r"\beta"),
        (r"\nu \ne \tau", r"\nu \ne \tau"),
        (r"1 \\ \pi", r"1 \\ \pi"),
        (r"\pi \"\u0041\"\n", '\\pi "A"\n'),
        (r"\unit{4}", r"\unit{4}"),
        (r"a\\c \f", r"a\c \f"),
        ("\\", "\\"),
        (r"\\\\", r"\\"),
    ],
)
def test_escapes(raw: str, expected: str) -> None:
    assert unescape(raw) == expected


GOOD = '{"final_answer": "42", "confidence": 0.9}'


def test_work_is_bounded_and_the_end_of_the_text_comes_first() -> None:
    crowd = '{"note": 1} '
    kept = GOOD + crowd * (MAX_STARTS - 1)
    assert read_stated(kept, "verbalized").statement.value == 0.9
    assert read_stated(GOOD + crowd * MAX_STARTS, "verbalized").statement.value is None
    assert read_stated(crowd * 10_000 + GOOD, "verbalized").statement.value == 0.9


@pytest.mark.parametrize(
    ("fill", "limit"),
    [
        (lambda n: '"' + "x" * n + '"', MAX_CHARACTERS),
        (lambda n: "[" + "1," * (n // 2) + "1]", MAX_TOKENS),
        (lambda n: "[" * n + "]" * n, MAX_DEPTH),
    ],
    ids=["characters", "tokens", "depth"],
)
def test_values_beyond_a_limit_are_not_read(fill: Callable[[int], str], limit: int) -> None:
    def value(size: int) -> str:
        return f'{{"final_answer": "42", "confidence": 0.9, "x": {fill(size)}}}'

    assert read_stated(value(limit // 2), "verbalized").statement.value == 0.9
    assert read_stated(value(limit), "verbalized").answer is None


def test_the_repair_sees_structure_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    repair = json_repair.loads

    def watch(text: str) -> Any:
        seen.append(text)
        return repair(text)

    monkeypatch.setattr(json_repair, "loads", watch)
    read_stated("prose {x: 1} " + GOOD, "verbalized")
    assert seen == []
    read_stated("prose {x: 1} " + GOOD.replace('"', "'") + " prose", "verbalized")
    assert seen == ['{"t1":"t3","t5":"t7"}']


HOSTILE = {
    "braces": "{" * 100_000,
    "brackets": "[" * 100_000,
    "both": "[{" * 50_000,
    "open objects": '{"final_answer":' * 10_000,
    "open arrays": '[{"candidate":' * 10_000,
    "values": '{"final_answer": "1", "confidence": 0.5} ' * 3_000,
    "broken values": "{'final_answer': '1', 'confidence': 0.5,} " * 3_000,
    "cut values": '{"final_answer": "x" ' * 5_000,
    "quotes": '{"final_answer": "' + '" ' * 50_000,
    "open quotes": '{"final_answer": "' * 10_000,
    "inner quotes": '{"final_answer": "' + '"a ' * 40_000,
    "apostrophes": "{'final_answer': '" + "'a' " * 30_000,
    "backslashes": '{"final_answer": "' + "\\" * 100_000,
    "escapes": '{"final_answer": "' + "\\u1234" * 16_000 + '"}',
    "blanks": '{"final_answer":' + " " * 100_000,
    "blanks between": ('{"final_answer":' + " " * 70) * 1_500,
    "commas": '{"final_answer": "1"' + "," * 100_000,
    "colons": '{"final_answer": "1"' + ":" * 100_000,
    "no commas": ('{"final_answer": "1",' + '"a" ' * 450) * 50,
    "no colons": '[{"candidate": "1"' + ' "a" "b"' * 200 + '[{"candidate": "1"' * 30,
    "groups": "{final_answer: " + "a{" * 50_000,
    "closing": '{"final_answer":' + "}]" * 50_000,
    "nested": '{"final_answer": [' * 15 + '"a",' * 400,
    "digits": '{"final_answer": "1", "confidence": ' + "9" * 90_000 + "}",
    "boxes": "\\boxed{" * 15_000 + "1" + "}" * 15_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_takes_little_time(text: str) -> None:
    read_stated("[{'candidate': 1,", "verbalized_top2")  # the first repair also imports the library
    started = time.process_time()
    for protocol in PROTOCOLS:
        read_stated(text, protocol)
    read_rating(text)
    assert time.process_time() - started < 3.0  # quadratic time would be minutes
