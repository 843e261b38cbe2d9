"""JSON arrays of candidates: the winner and its exact confidence, or why there is none."""

from __future__ import annotations

import pytest
from grade_samples import candidates, check_stated, not_a_number, read_stated

from divtok.protocols.prompts import messages_for

NO_ARRAY = "no JSON array of candidates found"
UNKNOWN = "the likeliest is not known, because of candidate "

BOTH = candidates(('"4"', "0.8"), ('"5"', "0.2"))
ARRAYS: dict[str, tuple[str, str | None, float | str]] = {
    "plain": (BOTH, "4", 0.8),
    "second": (candidates(('"4"', "0.2"), ('"5"', "0.7")), "5", 0.7),
    "tie": (candidates(('"4"', "0.5"), ('"5"', '"50%"')), "4", 0.5),
    "three": (candidates(('"4"', "0.2"), ('"5"', "0.3"), ('"6"', "0.4")), "6", 0.4),
    "one": (candidates(('"4"', "0.3")), "4", 0.3),
    "one without a number": (candidates(('"4"', '"high"')), "4", not_a_number("high")),
    "sum above one": (candidates(('"4"', "0.9"), ('"5"', "0.8")), "4", 0.9),
    "sum below one": (candidates(('"4"', "0.2"), ('"5"', "0.1")), "4", 0.2),
    "percentages": (candidates(('"4"', "85"), ('"5"', "15")), "4", 0.85),
    "numbers": (candidates(("4", "0.8"), ("0.5", "0.9")), "0.5", 0.9),
    "same answers": (candidates(('"4"', "0.4"), ('"4"', "0.6")), "4", 0.6),
    "confidence first": ('[{"confidence": 0.8, "candidate": "4"}]', "4", 0.8),
    "prose": (f"On [0, 1]:\n```json\n{BOTH}\n```\nThat [is] it.", "4", 0.8),
    "wrapped": (f'{{"candidates": {BOTH}}}', "4", 0.8),
    "nested": (f"[{BOTH}]", "4", 0.8),
    "last": (BOTH + candidates(('"6"', "0.3")), "6", 0.3),
    "other case": ('[{"Candidate": "4", "Confidence": 0.8}]', "4", 0.8),
    "single quotes": (BOTH.replace('"', "'"), "4", 0.8),
    "trailing commas": (BOTH.replace("}", ",}").replace("]", ",]"), "4", 0.8),
    "missing comma": (BOTH.replace("}, {", "}\n{"), "4", 0.8),
    "missing bracket": (BOTH.removesuffix("]"), "4", 0.8),
    "missing brackets": (BOTH.removesuffix("}]") + "]", "4", 0.8),
    "brackets mixed up": ('[{"candidate": "4", "confidence": 0.8]. So, {', "4", 0.8),
    "LaTeX": (candidates((r'"\frac{1}{2}"', "0.8"), (r'"\pi"', "0.2")), r"\frac{1}{2}", 0.8),
    "a number is missing": (
        '[{"candidate": "4", "confidence": 0.8}, {"candidate": "5"}]',
        None,
        UNKNOWN + "2 of 2: the confidence is missing",
    ),
    "a number cannot be read": (
        candidates(('"4"', '"low"'), ('"5"', "0.1")),
        None,
        UNKNOWN + "1 of 2: " + not_a_number("low"),
    ),
    "a number is negative": (
        candidates(('"4"', "0.9"), ('"5"', "-0.1")),
        None,
        UNKNOWN + '2 of 2: the confidence "-0.1" is negative',
    ),
    "cut off number": (
        '[{"candidate": "4", "confidence": 0.8}, {"candidate": "5", "confidence": 0.1',
        None,
        UNKNOWN + '2 of 2: the confidence "0.1" is cut off',
    ),
    "cut off key": (
        '[{"candidate": "4", "confidence": 0.8}, {"cand',
        None,
        UNKNOWN + "2 of 2: it is not an object",
    ),
    "cut off early": (
        '[{"candidate": "4", "confidence": 0.8}, {',
        None,
        UNKNOWN + "2 of 2: it is not an object",
    ),
    "cut off at the comma": (
        '[{"candidate": "4", "confidence": 0.8},',
        None,
        UNKNOWN + "2 of 2: it is not an object",
    ),
    "cut off in a code block": (
        '```\n[{"candidate": "4", "confidence": 0.8},\n``` [and so on]',
        None,
        UNKNOWN + "2 of 2: it is not an object",
    ),
    "not an object": (
        '[{"candidate": "4", "confidence": 0.8}, "5"]',
        None,
        UNKNOWN + "2 of 2: it is not an object",
    ),
    "likeliest is blank": (
        candidates(('""', "0.8"), ('"5"', "0.2")),
        None,
        "the candidate is blank",
    ),
    "likeliest is missing": (
        '[{"confidence": 0.8}, {"candidate": "5", "confidence": 0.2}]',
        None,
        "the candidate is missing",
    ),
    "other one is blank": (candidates(('"4"', "0.8"), ('""', "0.2")), "4", 0.8),
    "empty": ("", None, NO_ARRAY),
    "empty array": ("[]", None, NO_ARRAY),
    "array of an empty object": ("[{}]", None, NO_ARRAY),
    "no candidate": ('[{"confidence": 0.9}]', None, NO_ARRAY),
    "array of texts": ('["4", "5"]', None, NO_ARRAY),
    "no array": ('{"candidate": "4", "confidence": 0.8}', None, NO_ARRAY),
    "the other shape": ('{"final_answer": "4", "confidence": 0.8}', None, NO_ARRAY),
}


@pytest.mark.parametrize("protocol", ["verbalized_top2", "verbalized_distribution"])
@pytest.mark.parametrize(("text", "answer", "expected"), ARRAYS.values(), ids=ARRAYS)
def test_an_array(text: str, answer: str | None, expected: float | str, protocol: str) -> None:
    check_stated(text, protocol, answer, expected)


NONE = '"None of the above"'


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        (candidates(('"4"', "0.6"), ('"5"', "0.3"), (NONE, "0.1")), "4", 0.6),
        (candidates(('"4"', "0.2"), ('"5"', "0.3"), (NONE, "0.5")), "5", 0.3),
        (candidates((NONE, "0.4"), ('"4"', "0.3"), ('"5"', "0.3")), "4", 0.3),
        (candidates(('"4"', "0.2"), ('"none of the above."', "0.8")), "4", 0.2),
        (candidates(('"4"', "0.2"), ('"NONE OF THESE"', "0.8")), "4", 0.2),
        (candidates(('"4"', "0.2"), (r'"\text{None of the above}"', "0.8")), "4", 0.2),
        # Whatever its confidence, it cannot win.
        (candidates(('"4"', "0.4"), ('"5"', "0.3"), (NONE, '"rest"')), "4", 0.4),
        # With one other candidate there is nothing to weigh.
        (candidates(('"4"', '"high"'), (NONE, "0.1")), "4", not_a_number("high")),
        (
            candidates((NONE, "0.1"), ('"4"', "0.8"), ('"5"', '"?"')),
            None,
            UNKNOWN + "3 of 3: " + not_a_number("?"),
        ),
        (candidates((NONE, "1")), None, 'there is no candidate but "None of the above"'),
        # An answer in its own right.
        (candidates(('"None"', "0.8"), ('"5"', "0.1"), (NONE, "0.1")), "None", 0.8),
    ],
)
def test_none_of_the_above_never_wins(text: str, answer: str | None, expected: float | str) -> None:
    check_stated(text, "verbalized_distribution", answer, expected)


def test_none_of_the_above_is_a_candidate_where_it_was_not_asked_for() -> None:
    text = candidates(('"4"', "0.2"), (NONE, "0.8"))
    check_stated(text, "verbalized_top2", "None of the above", 0.8)


@pytest.mark.parametrize(
    ("protocol", "reply", "echoed"),
    [
        ("verbalized", '{"final_answer": "7", "confidence": 0.6}', "your answer"),
        ("verbalized_top2", candidates(('"7"', "0.6")), None),
        ("verbalized_distribution", candidates(('"7"', "0.6")), None),
    ],
)
def test_an_echoed_prompt_is_no_statement(protocol: str, reply: str, echoed: str | None) -> None:
    [message] = messages_for("What is 3 + 4?", protocol=protocol)
    check_stated(f"{message['content']}\n\n{reply}", protocol, "7", 0.6)
    alone = read_stated(message["content"], protocol)
    assert (alone.answer and alone.answer.content) == echoed
    assert alone.statement.value is None
    assert not_a_number("0-1") in str(alone.statement.reason)


@pytest.mark.parametrize(
    ("confidences", "answer", "value"),
    [
        (("99", "1"), "5", 0.99),
        (("1", "99"), "6", 0.99),
        (('"99%"', "1"), "5", 0.99),
        (("1", "0"), "5", 1.0),
        (("1", "0.5"), "5", 1.0),
        (("0.85", "15"), "5", 0.85),
    ],
)
def test_one_beside_percentages_is_one_percent(
    confidences: tuple[str, str], answer: str, value: float
) -> None:
    candidates = zip(("5", "6"), confidences, strict=True)
    objects = [f'{{"candidate": "{a}", "confidence": {c}}}' for a, c in candidates]
    found = read_stated(f"[{', '.join(objects)}]", "verbalized_top2")
    assert found.answer is not None
    assert (found.answer.content, found.statement.value) == (answer, value)


def test_a_lone_candidate_of_one_beside_none_of_the_above_in_percent() -> None:
    lone, rest = '{"candidate": "5", "confidence": 1}', '"confidence": 99}'
    text = f'[{lone}, {{"candidate": "None of the above", {rest}]'
    assert read_stated(text, "verbalized_distribution").statement.value == 0.01
