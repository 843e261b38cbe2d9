"""Routes: answers and steps checked by trying every way there is."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from itertools import islice

from training.tasks.routes import ROUTES, Map
from training.tasks.task import cases


def shortest(case: Map, place: int, seen: frozenset[int] = frozenset()) -> float:
    """By trying every way that visits no place twice."""
    if place == case.goal:
        return 0
    ways = [
        length + shortest(case, a + b - place, seen | {place})
        for a, b, length in case.roads
        if place in (a, b) and a + b - place not in seen
    ]
    return min(ways, default=float("inf"))


def test_answers_are_shortest_ways():
    for case in islice(cases(ROUTES, 1, "train", range(ROUTES.levels)), 200):
        assert int(case.answer) == shortest(case, case.start)


def test_places_are_settled_in_the_order_of_their_distances():
    for case in islice(cases(ROUTES, 2, "train", range(ROUTES.levels)), 200):
        distances = [step.reached_at for step in case.steps]
        assert distances == sorted(distances)
        for step in case.steps:
            reached = replace(case, goal=step.nearest)
            assert step.reached_at == shortest(reached, case.start)


def test_the_question_names_every_road_with_its_length():
    for case in islice(cases(ROUTES, 3, "train", range(ROUTES.levels)), 100):
        roads = case.question.split(". ")[0]
        words = re.findall(r"[A-Z][a-z]+|\d+", roads.replace("These", "").replace("The", ""))
        named = [word for a, b, n in case.roads for word in (case.names[a], case.names[b], str(n))]
        assert [word for word in words if word in {*case.names} or word.isdigit()] == named


def test_content_is_blind_to_names_and_sees_lengths_and_ends():
    case = next(cases(ROUTES, 4, "train", [5]))
    assert replace(case, names=case.names[::-1], question="").content == case.content
    (a, b, length), *others = case.roads
    assert replace(case, roads=((a, b, length + 1), *others)).content != case.content
    assert replace(case, goal=case.start).content != case.content


def test_wording_knows_nothing_of_the_numbers():
    for case in islice(cases(ROUTES, 5, "train", [2, 4]), 20):
        doubled = replace(case, roads=tuple((a, b, 2 * length) for a, b, length in case.roads))
        texts = [ROUTES.write(each, random.Random(6)) for each in (case, doubled)]
        assert texts[0] != texts[1]
        assert re.sub(r"\d+", "#", texts[0]) == re.sub(r"\d+", "#", texts[1])
