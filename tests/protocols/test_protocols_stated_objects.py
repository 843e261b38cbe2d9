"""One JSON object as models really write it: the exact confidence, or why there is none."""

from __future__ import annotations

import pytest
from grade_samples import check_stated, not_a_number

NO_OBJECT = "no JSON object with a final_answer found"

OBJECTS: dict[str, tuple[str, str | None, float | str]] = {
    "plain": ('{"final_answer": "42", "confidence": 0.9}', "42", 0.9),
    "prose": ('So {"a"} is:\n{"final_answer": "42", "confidence": 0.9} Done!', "42", 0.9),
    "fence": ('```json\n{\n  "final_answer": "42",\n  "confidence": 0.9\n}\n```', "42", 0.9),
    "no blanks": ('{"final_answer":"42","confidence":0.9}', "42", 0.9),
    "confidence first": ('{"confidence": 0.9, "final_answer": "42"}', "42", 0.9),
    "first key in other letters": (
        '{"推理 (1)": "", "final_answer": "4", "confidence": 1}',
        "4",
        1.0,
    ),
    "extra keys": ('{"steps": [1, {"x": "}"}], "final_answer": "4", "confidence": 1}', "4", 1.0),
    "outer blanks": ('{"final_answer": "  42 ", "confidence": " 0.9 "}', "42", 0.9),
    "other case": ('{"Final Answer": "42", "CONFIDENCE": 0.9}', "42", 0.9),
    "camel case": ('{"finalAnswer": "42", "Confidence": 0.9}', "42", 0.9),
    "unicode": ('{"final_answer": "π² – größer 😀", "confidence": 0.9}', "π² – größer 😀", 0.9),
    "unicode escapes": (r'{"final_answer": "\u00bd \ud83d\ude00", "confidence": 0.9}', "½ 😀", 0.9),
    "half a pair": (r'{"final_answer": "\ud83d", "confidence": 0.9}', r"\ud83d", 0.9),
    # Numbers
    "integer answer": ('{"final_answer": 42, "confidence": 0.9}', "42", 0.9),
    "answer as written": ('{"final_answer": 0.50, "confidence": 0.9}', "0.50", 0.9),
    "numeric text": ('{"final_answer": "42", "confidence": "0.9"}', "42", 0.9),
    "percent": ('{"final_answer": "42", "confidence": "85%"}', "42", 0.85),
    "percent, blank": ('{"final_answer": "42", "confidence": "85 %"}', "42", 0.85),
    "percent, LaTeX": (r'{"final_answer": "42", "confidence": "85\%"}', "42", 0.85),
    "percent, bare": ('{"final_answer": "42", "confidence": 85%}', "42", 0.85),
    "percent below one": ('{"final_answer": "42", "confidence": "0.5%"}', "42", 0.005),
    "one percent": ('{"final_answer": "42", "confidence": "1%"}', "42", 0.01),
    "percentage": ('{"final_answer": "42", "confidence": 85}', "42", 0.85),
    "exact percentage": ('{"final_answer": "42", "confidence": 99.9}', "42", 0.999),
    "just above one": ('{"final_answer": "42", "confidence": 1.2}', "42", 0.012),
    "hundred": ('{"final_answer": "42", "confidence": 100}', "42", 1.0),
    "one": ('{"final_answer": "42", "confidence": 1.0}', "42", 1.0),
    "zero": ('{"final_answer": "42", "confidence": 0}', "42", 0.0),
    "no leading zero": ('{"final_answer": "42", "confidence": .9}', "42", 0.9),
    "exponent": ('{"final_answer": "42", "confidence": 9e-1}', "42", 0.9),
    "negative": (
        '{"final_answer": "42", "confidence": -1}',
        "42",
        'the confidence "-1" is negative',
    ),
    "above hundred": (
        '{"final_answer": "42", "confidence": 101}',
        "42",
        'the confidence "101" is above 100',
    ),
    "percent above hundred": (
        '{"final_answer": "42", "confidence": "150%"}',
        "42",
        'the confidence "150%" is above 100',
    ),
    "huge": (
        '{"final_answer": "42", "confidence": 1e999}',
        "42",
        'the confidence "1e999" is above 100',
    ),
    "nan": ('{"final_answer": "42", "confidence": NaN}', "42", not_a_number("NaN")),
    "infinity": ('{"final_answer": "42", "confidence": Infinity}', "42", not_a_number("Infinity")),
    "boolean": ('{"final_answer": "42", "confidence": true}', "42", not_a_number("true")),
    "Python": ("{'final_answer': '42', 'confidence': True}", "42", not_a_number("True")),
    "null": ('{"final_answer": "42", "confidence": null}', "42", not_a_number("null")),
    "word": ('{"final_answer": "42", "confidence": "high"}', "42", not_a_number("high")),
    "number word": ('{"final_answer": "42", "confidence": "nine"}', "42", not_a_number("nine")),
    "range": ('{"final_answer": "42", "confidence": "0.8-0.9"}', "42", not_a_number("0.8-0.9")),
    "bare range": ('{"final_answer": "42", "confidence": 0.8-0.9}', "42", not_a_number("0.8-0.9")),
    "about": ('{"final_answer": "42", "confidence": "~0.9"}', "42", not_a_number("~0.9")),
    "fraction": ('{"final_answer": "42", "confidence": "9/10"}', "42", not_a_number("9/10")),
    "other digits": ('{"final_answer": "42", "confidence": "٠.٩"}', "42", not_a_number("٠.٩")),
    "comment": (
        '{"final_answer": "42", "confidence": 0.9 // sure\n}',
        "42",
        not_a_number("0.9 // sure"),
    ),
    "too long": (
        '{"final_answer": "42", "confidence": 0.' + "3" * 60 + "}",
        "42",
        not_a_number("0." + "3" * 38 + "..."),
    ),
    "decimal comma": (
        '{"final_answer": "42", "confidence": 0,9}',
        "42",
        'the confidence "0" is not the only value in its place',
    ),
    "no confidence": ('{"final_answer": "42"}', "42", "the confidence is missing"),
    "blank confidence": (
        '{"final_answer": "42", "confidence": ""}',
        "42",
        "the confidence is blank",
    ),
    "confidence is an object": (
        '{"final_answer": "42", "confidence": {"value": 0.9}}',
        "42",
        "the confidence is an object, not a number",
    ),
    "confidence is an array": (
        '{"final_answer": "42", "confidence": [0.9]}',
        "42",
        "the confidence is an array, not a number",
    ),
    # Answers
    "no answer": ('{"confidence": 0.9}', None, NO_OBJECT),
    "blank answer": (
        '{"final_answer": " ", "confidence": 0.9}',
        None,
        "the final_answer is blank",
    ),
    "null answer": (
        '{"final_answer": null, "confidence": 0.9}',
        None,
        "the final_answer is null",
    ),
    "the word None": ('{"final_answer": "None", "confidence": 0.9}', "None", 0.9),
    "left out answer": (
        '{"final_answer": , "confidence": 0.9}',
        None,
        "the final_answer cannot be made out",
    ),
    "answer is an object": (
        '{"final_answer": {"x": 1}, "confidence": 0.9}',
        None,
        "the final_answer is an object, not a text or a number",
    ),
    "answer is an array": (
        '{"final_answer": [1, 2], "confidence": 0.9}',
        None,
        "the final_answer is an array, not a text or a number",
    ),
    "thousands without quotes": (
        '{"final_answer": 1,234, "confidence": 0.9}',
        None,
        'the final_answer "1" is not the only value in its place',
    ),
    "ratio without quotes": (
        '{"final_answer": 3:4, "confidence": 0.9}',
        None,
        "the final_answer cannot be made out",
    ),
    "empty": ("", None, NO_OBJECT),
    "prose only": ("The answer is 42 and I am 90% sure.", None, NO_OBJECT),
    "empty object": ("{}", None, NO_OBJECT),
    "box only": (r"\boxed{42}", None, NO_OBJECT),
    "other keys": ('{"answer": "42", "probability": 0.9}', None, NO_OBJECT),
    # LaTeX
    "escaped LaTeX": (
        r'{"final_answer": "\\frac{1}{2}", "confidence": 0.9}',
        r"\frac{1}{2}",
        0.9,
    ),
    "LaTeX, a form feed to JSON": (
        r'{"final_answer": "\frac{1}{2}", "confidence": 0.9}',
        r"\frac{1}{2}",
        0.9,
    ),
    "LaTeX, blanks to JSON": (
        r'{"final_answer": "3\times 4 \neq \rho\text{ cm}", "confidence": 0.9}',
        r"3\times 4 \neq \rho\text{ cm}",
        0.9,
    ),
    "LaTeX, no escape to JSON": (
        r'{"final_answer": "\left\{\sqrt{2}\right\}", "confidence": 0.9}',
        r"\left\{\sqrt{2}\right\}",
        0.9,
    ),
    "LaTeX rows": (
        r'{"final_answer": "\begin{pmatrix} 1 \\ 2 \end{pmatrix}", "confidence": 0.9}',
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
        0.9,
    ),
    "escaped rows": (
        r'{"final_answer": "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "confidence": 0.9}',
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
        0.9,
    ),
    "not Unicode": (
        r'{"final_answer": "\underline{a}", "confidence": 0.9}',
        r"\underline{a}",
        0.9,
    ),
    "new line": (r'{"final_answer": "x = 1\nor 2", "confidence": 0.9}', "x = 1\nor 2", 0.9),
    "LaTeX without quotes": (
        r"{final_answer: \sqrt{\frac{1}{2}}, confidence: 0.9}",
        r"\sqrt{\frac{1}{2}}",
        0.9,
    ),
    "box in the answer": (
        r'{"final_answer": "\boxed{42}", "confidence": 0.9}',
        r"\boxed{42}",
        0.9,
    ),
    "in a box": (r'\boxed{{"final_answer": "42", "confidence": 0.9}}', "42", 0.9),
    # Repairs
    "single quotes": ("{'final_answer': '42', 'confidence': 0.9}", "42", 0.9),
    "prime": ("{'final_answer': 'f'(x) = 2', 'confidence': 0.9}", "f'(x) = 2", 0.9),
    "curly quotes": ("{“final_answer”: “42”, “confidence”: “0.9”}", "42", 0.9),
    "unquoted keys": ('{final_answer: "42", confidence: 0.9}', "42", 0.9),
    "trailing comma": ('{"final_answer": "42", "confidence": 0.9,}', "42", 0.9),
    "missing comma": ('{"final_answer": "42" "confidence": 0.9}', "42", 0.9),
    "missing comma, lines": ('{"final_answer": "42"\n"confidence": 0.9\n}', "42", 0.9),
    "no colon": (
        '{"n": 1\nconfidence\n0.9\n"final_answer": "42"}',
        "42",
        "the confidence is missing",
    ),
    "inner quotes": (
        '{"final_answer": "the "big" one", "confidence": 0.9}',
        'the "big" one',
        0.9,
    ),
    "escaped quotes": (r'{"final_answer": "\"a\"", "confidence": 0.9}', '"a"', 0.9),
    "closing bracket missing": ('{"final_answer": "42", "confidence": "0.9"', "42", 0.9),
    "fence in its place": ('```\n{"final_answer": "42", "confidence": 0.9\n```', "42", 0.9),
    "prose in its place": ('{"final_answer": "42", "confidence": 0.9\n\nAll done.', "42", 0.9),
    "cut off later": ('{"final_answer": "42", "confidence": 0.9, "why": "bec', "42", 0.9),
    "cut off number": (
        '{"final_answer": "42", "confidence": 0.',
        "42",
        'the confidence "0." is cut off',
    ),
    "cut off number?": (
        '{"final_answer": "42", "confidence": 1',
        "42",
        'the confidence "1" is cut off',
    ),
    "cut off answer": ('{"final_answer": "4', None, 'the final_answer "4" is cut off'),
    "cut off key": ('{"final_answer": "42", "confi', "42", "the confidence is missing"),
    "quote missing": (
        '{"final_answer": "42, "confidence": 0.9}',
        None,
        "the final_answer cannot be made out",
    ),
    "brackets mixed up": ('{"final_answer": "42", "confidence": 0.9]', "42", 0.9),
    "doubled braces": ('{{"final_answer": "42", "confidence": 0.9}}', "42", 0.9),
    # Several values
    "last": (
        '{"final_answer": "1", "confidence": 0.1} no: {"final_answer": "2", "confidence": 0.2}',
        "2",
        0.2,
    ),
    "last, then others": (
        '{"final_answer": "1", "confidence": 0.1} {"note": "x"} {"confidence": 0.5} [0, 1)',
        "1",
        0.1,
    ),
    "last is broken": (
        "{\"final_answer\": \"1\", \"confidence\": 0.1} {'final_answer': '2', 'confidence': 0.2,}",
        "2",
        0.2,
    ),
    "first is broken": (
        '{"final_answer": "1, "confidence": 0.1} {"final_answer": "2", "confidence": 0.2}',
        "2",
        0.2,
    ),
    "first was left off": (
        '{"final_answer": "1", "confidence": 0.1\nWait: {"final_answer": "2", "confidence": 0.2}',
        "2",
        0.2,
    ),
    "last has no confidence": (
        '{"final_answer": "1", "confidence": 0.1} {"final_answer": "2"}',
        "2",
        "the confidence is missing",
    ),
    "nested": ('{"result": {"final_answer": "42", "confidence": 0.9}, "n": 1}', "42", 0.9),
    "outermost": (
        '{"final_answer": "1", "confidence": 0.9, "no": [{"final_answer": "2", "confidence": 0}]}',
        "1",
        0.9,
    ),
    "outermost, broken": (
        '{"final_answer": "1", "confidence": 0.9, "no": {"final_answer": "2", "confidence": 0},}',
        "1",
        0.9,
    ),
    "in a string": (
        '{"final_answer": "1", "confidence": 0.9, "no": "{\'final_answer\': 2}"}',
        "1",
        0.9,
    ),
    "duplicate keys": (
        '{"final_answer": "1", "confidence": 0.1, "final_answer": "2", "confidence": 0.2}',
        "2",
        0.2,
    ),
    "in an array": ('[{"final_answer": "42", "confidence": 0.9}]', "42", 0.9),
    "sets and intervals": (
        r'On [0, 1) and \{x : x > 0\}, {x: 1}: {"final_answer": "42", "confidence": 0.9}',
        "42",
        0.9,
    ),
}


@pytest.mark.parametrize(("text", "answer", "expected"), OBJECTS.values(), ids=OBJECTS)
def test_one_object(text: str, answer: str | None, expected: float | str) -> None:
    check_stated(text, "verbalized", answer, expected)
