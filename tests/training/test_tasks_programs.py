"""Programs: the words of the question carried out by other code give the answer."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import islice

from training.tasks.programs import PROGRAMS, SHORTEST, Operation, apply
from training.tasks.task import cases


def carried_out(order: str, digits: str) -> str:
    """One sentence of a question, on the digits as a string."""
    numbers = [int(n) for n in re.findall(r"\d+", order)]
    if re.search(r"Reverse|around|backwards", order):
        return "".join(reversed(digits))
    if re.search(r"left by|to the end", order):
        return digits[numbers[0] :] + digits[: numbers[0]]
    if re.search(r"right by|to the front\.", order) and "odd" not in order:
        cut = len(digits) - numbers[0]
        return digits[cut:] + digits[:cut]
    if re.search(r"downwards|falling", order):
        return "".join(sorted(digits))[::-1]
    if re.search(r"Sort|rising", order):
        return "".join(sorted(digits))
    if re.search(r"Swap|Exchange", order):
        i, j = numbers
        listed = dict(enumerate(digits, 1))
        listed[i], listed[j] = listed[j], listed[i]
        return "".join(listed.values())
    if re.search(r"Drop|Remove", order):
        return "".join(d for place, d in enumerate(digits, 1) if place != numbers[0])
    if re.search(r"Add|Raise", order):
        return "".join(str(int(d) + numbers[0])[-1] for d in digits)
    if "9" in order:
        return digits.translate(str.maketrans("0123456789", "9876543210"))
    assert "odd" in order.lower()
    return "".join(d for d in digits if d in "13579") + "".join(d for d in digits if d in "02468")


def test_the_words_of_a_question_carried_out_give_the_lists_and_the_answer():
    for case in islice(cases(PROGRAMS, 1, "train", range(PROGRAMS.levels)), 400):
        begin, *orders, _ = re.split(r"(?<=[.?]) ", case.question)
        now = "".join(re.findall(r"\d", begin))
        for order, digits in zip(orders, case.lists, strict=True):
            now = carried_out(order, now)
            assert now == "".join(map(str, digits)), order
        assert now == case.answer


def test_each_line_of_a_solution_ends_in_the_list():
    rng = random.Random(2)
    for case in islice(cases(PROGRAMS, 2, "train", range(PROGRAMS.levels)), 200):
        *lines, _ = PROGRAMS.write(case, rng).split("\n")
        for line, digits in zip(lines, case.lists, strict=True):
            assert "".join(re.findall(r"\d", line)).endswith("".join(map(str, digits)))


def test_no_list_gets_too_short():
    for case in islice(cases(PROGRAMS, 3, "train", range(PROGRAMS.levels)), 400):
        assert min(map(len, case.lists)) >= SHORTEST


def test_odd_ones_keep_their_order():
    assert apply(Operation("odd"), (4, 3, 2, 1, 5)) == (3, 1, 5, 4, 2)


def test_wording_knows_nothing_of_the_digits():
    for case in islice(cases(PROGRAMS, 4, "train", [2, 4]), 20):
        other = replace(case, start=tuple((digit + 3) % 10 for digit in case.start))
        texts = [PROGRAMS.write(each, random.Random(6)) for each in (case, other)]
        assert texts[0] != texts[1]
        assert re.sub(r"\d", "#", texts[0]) == re.sub(r"\d", "#", texts[1])
