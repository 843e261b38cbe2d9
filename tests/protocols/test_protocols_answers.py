"""Where responses without a box hold their answer, one protocol after the other."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.protocols.extract import extract_answer, find_answer
from divtok.protocols.prompts import messages_for

NEW = ("hashes", "sentence", "text", "letter", "json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 * 6 = 18 eggs\n#### 18", "18"),
        ("#### 5\nNo, that is not all of it.\n#### 18\n", "18"),
        ("#### 1,234.", "1,234"),
        ("#### -3.5", "-3.5"),
        ("####18", "18"),
        ("#### **18**", "18"),
        ("#### $18$.", "18"),
        ("#### $18", "$18"),
        (r"#### \boxed{18}", "18"),
        ("#### The answer is 18.", "18"),
        ("#### Paris", "Paris"),
        ("#### 18\n\nQuestion: and now?", "18"),
        # Four hashes are a heading too.
        ("#### Step 1: add\n3 + 4 = 7\n#### 7", "7"),
        ("#### 7\n\n#### Check\n3 + 4 is 7.", "7"),
        ("#### Step 1: add\n3 + 4 = 7", None),
        ("##### 18", None),
        ("### 18", None),
        ("####\n18", None),
        ("The answer is 18.", None),
        ("", None),
    ],
)
def test_hashes(text: str, expected: str | None) -> None:
    assert extract_answer(text, "hashes") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9 * 2 = 18. The answer is 18.", "18"),
        ("the final answer is: **B**", "B"),
        ("Answer: 18", "18"),
        ("**Answer:** 18", "18"),
        ("**Answer: 18**", "18"),
        ("**Answer:** **18**", "18"),
        ("The answer is **18**.", "18"),
        ("A: 26", "26"),
        ("**Final Answer**\n\n18", "18"),
        ("### Final Answer\n\n$$18$$", "18"),
        ("The final answer is\n\\[\n\\boxed{18}\n\\]", "18"),
        ("The answer is:\n```\n18\n```", "18"),
        ("Final Answer: The final answer is $18$. I hope it is correct.", "18"),
        ("The answer to the question is therefore 18.", "18"),
        # The last one, but nothing that only mentions the word.
        ("The answer is 5. Wait. The answer is 18.", "18"),
        ("The answer is 18. I hope this answer is helpful.", "18"),
        ("The answer is 18. We check whether the answer is even.", "18"),
        ("The answer is 18. If the answer is negative, we are wrong.", "18"),
        ("The answer is 18. So the answer is not 5.", "18"),
        ("The answer isn't 5.", None),
        ("There are four answer choices: A, B, C, D.", None),
        # Where a value ends.
        ("The answer is 3.5. Then 3.5 is it.", "3.5"),
        ("The answer is 0.5", "0.5"),
        ("The answer is .5.", ".5"),
        ("The answer is $18.50.", "$18.50"),
        ("The answer is $x = 3.$ Done.", "x = 3"),
        ("The answer is \\(18\\).", "18"),
        (r"The answer is \boxed{\frac12}.", r"\frac12"),
        (r"The answer is $\text{18}.$", "18"),
        ("The answer is (1, 2, 3).", "(1, 2, 3)"),
        ("The answer is 1,234,567.", "1,234,567"),
        ("The answer is 18 dollars.", "18 dollars"),
        ("So the answer is 18!", "18"),
        ("So the answer is $5!$.", "5!"),
        ("The answer is 18 because 9 * 2 is 18.", "18"),
        ("The answer is 18, since 9 * 2 is 18.", "18"),
        ("The answer is Dr. Smith. He knows.", "Dr. Smith"),
        ("The answer is 3 p.m.", "3 p.m."),
        ("The answer is about 3 ft. of rope. Good.", "about 3 ft. of rope"),
        ("The answer is.", None),
        ("Answer:", None),
        ("18", None),
        ("", None),
    ],
)
def test_a_sentence(text: str, expected: str | None) -> None:
    assert extract_answer(text, "sentence") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So the answer is yes.", "yes"),
        ("So the answer is yes. It could not be no.", "yes"),
        ("Answer: yes", "yes"),
        ('**Answer:** "no"', "no"),
        ("Answer: Dr. Smith. Or so.", "Dr. Smith. Or so"),
        ("Answer: ) ] }", ") ] }"),
        ("Answer: > ]", "> ]"),
        ("Answer: (B)", "(B)"),
        ("Answer: 05/01/2021", "05/01/2021"),
        ("Answer: ant bee cow.", "ant bee cow"),
        ("A: Let's think. Both hold. So the answer is valid.", "valid"),
        ("Answer: no\nI was wrong.\nAnswer: yes", "yes"),
        ("It is so.", None),
    ],
)
def test_a_text(text: str, expected: str | None) -> None:
    assert extract_answer(text, "text") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is (C)", "C"),
        ("The answer is C.", "C"),
        ("the answer is (c).", "c"),
        ("Answer: D", "D"),
        ("Answer: [D]", "D"),
        ("**Answer:** C", "C"),
        ("**Answer: C) Paris**", "C"),
        ("Answer: A. It has to be.", "A"),
        ("Answer: A – Paris", "A"),
        ("The answer is $C$.", "C"),
        ("The answer is option (B) Paris", "B"),
        ("The answer is B Paris", "B"),
        ("The answer is C, a city", "C"),
        ("The answer is A because 2 is even.", "A"),
        ("The correct option is B since 2 is even.", "B"),
        ("The best choice is D: all of them", "D"),
        ("The correct answer choice is (E).", "E"),
        ("The final answer is:\n\n**(J)**", "J"),
        ("The answer is:\n\\[\n\\boxed{B}\n\\]", "B"),
        ('{"answer": "C"}', "C"),
        (r"\boxed{C}", "C"),
        (r"\boxed{\text{C}}", "C"),
        (r"\boxed{\textbf{(C)}}", "C"),
        (r"\boxed{C) 12}", "C"),
        ("Therefore, option C is the correct answer.", "C"),
        ("(C) is the best choice here.", "C"),
        # A line of its own, the last or, where nothing else commits, the first.
        ("**B**", "B"),
        ("b)", "b"),
        ("I think it through.\n\nC", "C"),
        ("(B) Paris", "B"),
        ("B. Paris", "B"),
        ("It is a city.\n**B. Paris**", "B"),
        ("B\n\nParis is the capital.", "B"),
        ("**B.** Paris\n\nParis is the capital.", "B"),
        ("Therefore, **B**.", "B"),
        # The last commitment counts.
        ("The answer is B.\nWait. \\boxed{C}", "C"),
        ("\\boxed{B}. No: the answer is (C).", "C"),
        ("Answer: B\nI mean:\nC", "C"),
        # Mentioned, denied, or one of several.
        ("Option A is tempting. Option B is wrong.", None),
        ("The answer is not (C).", None),
        ("The answer is neither A nor B.", None),
        ("The answer is either A or B.", None),
        ("The answer is A or B.", None),
        ("The answer is (A) and (B).", None),
        ("The answer is B/C", None),
        (r"\boxed{A, C}", None),
        ("So it is not **B**.", None),
        ("It is between **A** and **B**.", None),
        ("If C is the correct answer then 2 is odd.", None),
        ("A. ant\nB. bee\nC. cow", None),
        ("**A**\nThis is wrong.\n**B**\nThis may be.", None),
        ("Answer choices: (A) ant (B) bee", None),
        ("I don't think the answer is B.", None),
        ("The wrong answer is B", None),
        ("A wrong answer: B", None),
        ("The answer is B? No, it cannot be.", None),
        ("The answer is (B)?", None),
        (r"The answer is not \boxed{B}", None),
        ("B is not the correct answer. C is the correct answer.", "C"),
        ("A or B is the correct answer.", None),
        ("It is A or **B**.", None),
        ("It is not A, so the answer is B.", "B"),
        ("A is wrong so the answer is B.", "B"),
        ("There is no doubt that the answer is B.", "B"),
        ("I do not like A. The answer is B.", "B"),
        *(
            (f"Answer: {several}", None)
            for several in ("A; B", "A (and C)", "B C", "B C D", "B. C.")
        ),
        *(
            (f"Answer: {several}", None)
            for several in ("B) C", "B) and C)", "B) 5 or C) 6", "(A) (C)")
        ),
        *((several, None) for several in ("(B) or (C)", "B) 5 or C) 6", "B. C.")),
        *(
            (f"Answer: {one}", "B")
            for one in ("B (not C)", "B. E. coli", "B X-ray", "B (C is odd)")
        ),
        *((f"Answer: {one}", "B") for one in ("B) A car or a bus", "B - Paris", "B. Vitamin C")),
        *((f"Answer: {one}", "B") for one in ("B; A is odd", "B;\nC is odd", "B; a car")),
        ("The correct answer is C", "C"),
        ("So the answer is (C) because (A) and (B) are odd.", "C"),
        (r"\boxed{(C)}", "C"),
        (r"\boxed{C. Paris}", "C"),
        (r"\boxed{C) 5}", "C"),
        # Words and values that begin with a letter, or are one.
        (r"\boxed{C_2H_5OH}", None),
        (r"\boxed{C_{2}}", None),
        (r"\boxed{B - A}", None),
        ("The answer is a mixture of both.", None),
        ("The answer is A mixture of both.", None),
        ("The answer is I think unknown", None),
        ("Answer: C++", None),
        ("Answer: U.S.", None),
        ("Answer: vitamin C", None),
        ("Answer: LETTER", None),
        (r"\boxed{42}", None),
        (r"\boxed{D = 5}", None),
        ("I pick one.", None),
        ("", None),
    ],
)
def test_a_letter(text: str, expected: str | None) -> None:
    assert extract_answer(text, "letter") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'See [1].\n```json\n{"a": [1, {"b": null}]}\n```\nThat is it {so}.',
            '{"a": [1, {"b": null}]}',
        ),
        ('{"a": 1} or rather ["b", {"c": 2}]', '["b", {"c": 2}]'),
        ('{"a": "[1] {"}', '{"a": "[1] {"}'),
        ('{"a": 1} and {"b": 2', '{"a": 1}'),
        (r"\[ x_{1} \] and {so on}", None),
        ("[NaN]", None),
        ("{'a': 1}", None),
        ("42", None),
    ],
)
def test_json(text: str, expected: str | None) -> None:
    assert extract_answer(text, "json") == expected


@pytest.mark.parametrize(
    ("protocol", "form"),
    [
        ("hashes", "#### ANSWER"),
        ("sentence", "The answer is ANSWER."),
        ("text", "Answer: TEXT"),
        ("letter", "Answer: LETTER"),
        ("json", "```json ANSWER ```"),
    ],
)
def test_the_form_is_asked_for_and_the_question_stays_bare(protocol: str, form: str) -> None:
    system, user = messages_for("Why?", protocol=protocol)
    assert system["role"] == "system"
    assert form in system["content"]
    assert user == {"role": "user", "content": "Why?"}


FRAGMENTS = [
    *("the answer is ", "Answer:", "A:", "####", "**", "*", "`", "$", "$$", "\\[", "\\]"),
    *("\\boxed{", "{", "}", "[", "]", '"', "(", ")", ". ", ".", ",", " or ", "not ", "because"),
    *("\n", "\n\n", " ", "A", "b", "C)", "18", "1.5", "Dr.", "\\text{", "option "),
    *("is the correct answer", "true", "é"),
]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), st.sampled_from(NEW))
def test_an_answer_is_a_part_of_the_text_without_outer_blanks(text: str, protocol: str) -> None:
    span = find_answer(text, protocol)
    if span is not None:
        assert text[span.start : span.stop] == span.content
        assert span.content.strip() == span.content != ""


@given(
    before=st.lists(st.sampled_from(FRAGMENTS), max_size=6).map("".join),
    value=st.from_regex(r"-?[0-9]{1,4}(\.[0-9]{1,3})?", fullmatch=True),
    dress=st.sampled_from(["{}", "**{}**", "${}$", "\\({}\\)", "`{}`", "\\boxed{{{}}}", '"{}"']),
    stop=st.sampled_from(["", ".", ".\n", "\n"]),
)
def test_a_number_at_the_end_is_found_whatever_its_dress(
    before: str, value: str, dress: str, stop: str
) -> None:
    dressed = dress.format(value) + stop
    assert extract_answer(f"{before}\n\nThe answer is {dressed}", "sentence") == value
    assert extract_answer(f"{before}\n\nAnswer: {dressed}", "text") == value
    assert extract_answer(f"{before}\n\n#### {dressed}", "hashes") == value


COUNT = 50_000


@pytest.mark.parametrize("protocol", NEW)
@pytest.mark.parametrize(
    "hostile",
    [
        *("answer: ", "answer: not ", "the answer is ", "the answer is because ", "answer:\n"),
        *("answer: $$", "answer: \\[ ", "answer: .", "answer: Dr. ", "answer to ", "#### a\n"),
        *("####\n", "#### answer is\n", "#", "**A**\n", "A is the correct ", "A.\n", "[", "[1,"),
        *(
            '["',
            '{"a":',
            '["a',
            "[[]",
            "{}",
            "\\boxed{A}",
            "answer: \\text{",
            "the answer is (A) or ",
        ),
        *("answer: A) or ", "answer: A (and ", "A is wrong if the answer is "),
    ],
)
def test_hostile_text_takes_linear_time(hostile: str, protocol: str) -> None:
    started = time.monotonic()
    find_answer(hostile * COUNT, protocol)
    find_answer("answer: " + hostile[-1] * 4 * COUNT, protocol)
    assert time.monotonic() - started < 5.0  # quadratic time would be minutes
