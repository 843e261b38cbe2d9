"""Puzzles: one order only, found by trying all; steps that say what is so."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import islice, permutations

from training.tasks.puzzles import PUZZLES, Queue
from training.tasks.task import cases


def orders(case: Queue) -> list[tuple[str, ...]]:
    """Every order of the people that the question's own words allow."""
    clues: list[tuple[str, str]] = []
    for text in case.question.split(". ")[1:-1]:
        first, *_, second = re.findall(r"[A-Z]\w+", text)
        behind = re.search(r"after|behind|later", text)
        clues.append((second, first) if behind else (first, second))
    return [
        order
        for order in permutations(case.names)
        if all(order.index(a) < order.index(b) for a, b in clues)
    ]


def test_the_words_of_a_question_allow_one_order_with_the_answer_in_its_place():
    for case in islice(cases(PUZZLES, 1, "train", [0, 1]), 30):
        assert orders(case) == [case.names]
        assert case.answer == case.names[case.asked]


def test_who_is_next_is_who_waits_for_nobody():
    for case in islice(cases(PUZZLES, 2, "train", range(PUZZLES.levels)), 200):
        assert len(case.steps) == case.asked + 1
        for place, step in enumerate(case.steps):
            waiting = {who for who, _ in step.waiting}
            assert place not in waiting
            if place:
                assert set(step.candidates) == {*waiting, place}
            for who, ahead in step.waiting:
                assert (ahead, who) in case.clues
                assert ahead >= place, "whoever is placed already holds up nobody"


def test_content_is_blind_to_names():
    case = next(cases(PUZZLES, 3, "train", [3]))
    assert replace(case, names=case.names[::-1], question="").content == case.content
    assert replace(case, asked=0).content != case.content


def test_wording_knows_nothing_of_the_names():
    for case in islice(cases(PUZZLES, 4, "train", [2, 4]), 20):
        turned = replace(case, names=case.names[::-1])
        texts = [PUZZLES.write(each, random.Random(6)) for each in (case, turned)]
        assert texts[0] != texts[1]
        blind = re.compile("|".join(case.names))
        assert blind.sub("#", texts[0]) == blind.sub("#", texts[1])
