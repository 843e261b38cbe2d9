"""Routes: how long is the shortest way between two places, found by settling place after place.

A case is a small graph of named places with roads of given lengths. Its solution settles the places
in the order of their distance from the start: each line writes the sums to the neighbours that are
still open and then names the nearest open place, which asks for a look back at all earlier sums.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from training.tasks.task import Task
from training.wording import maybe, pick, sentence

PLACES = (
    "Alm", "Bree", "Cove", "Dorn", "Elm", "Ford", "Glen", "Holm", "Isle", "Kirk", "Lund", "Moor",
    "Nore", "Oak", "Pont", "Rand", "Stow", "Thorp", "Ulm", "Vale", "Wick", "York",
)  # fmt: skip
# Places, roads beyond those that connect all, longest road.
_LEVELS = ((3, 1, 9), (4, 1, 9), (4, 2, 19), (5, 2, 19), (5, 3, 29), (6, 4, 29))

_ROAD = ("{a} to {b} is {l}", "{a} to {b}: {l}", "between {a} and {b}: {l}", "{a} and {b}, {l}")
_LIST = ("These roads exist: {roads}.", "The map shows {roads}.", "Roads and lengths: {roads}.")
_ASK = (
    "How long is the shortest way from {start} to {goal}?",
    "What is the least distance from {start} to {goal}?",
    "Which length has the shortest route that leads from {start} to {goal}?",
)

# Chance of an opener, of an aside and of a remark in each line, for each manner of writing.
_MANNERS = ((0.0, 0.05, 0.0), (0.8, 0.1, 0.1), (0.2, 0.7, 0.3), (0.7, 0.6, 0.7))
_OPENER = ("now", "so", "next", "going on", "well", "as before", "once more", "here we go")
_AT = (
    "from {x} at {d}",
    "{x} is settled at {d}",
    "standing in {x} after {d}",
    "with {x} reached at {d}",
    "{x} has distance {d}",
)
_ASIDE = (
    " we look at the roads",
    " we check who is near",
    " the map leads on",
    " there are these ways",
    " we try all that is open",
)
_SUM = ("{y} {d} + {l} = {t}", "{y} by {d} + {l} = {t}", "to {y} {d} + {l} = {t}")
_NONE = ("nothing new", "no open neighbour", "no road to an open place", "only settled places")
_NEAREST = (
    "nearest is {w} at {t}",
    "the nearest open place is {w} with {t}",
    "the least is {t} for {w}",
    "we settle {w}, distance {t}",
    "so {w} is next with {t}",
    "no open place beats {w} and its {t}",
)
_REMARK = (
    ", which is now fixed",
    ", and that stays",
    ", as all others are farther",
    ", a step closer to the goal",
    ", so we travel on from there",
)
_END = (
    "The shortest way is {answer}",
    "So the answer is {answer}",
    "The goal is settled, hence {answer}",
    "We arrive in {goal} after {answer}",
    "Thus the distance is {answer}",
)


@dataclass(frozen=True, slots=True)
class Settling:
    """One step: (neighbour, length of the road, sum) from `place` on, then the nearest open one."""

    place: int
    distance: int
    sums: tuple[tuple[int, int, int], ...]
    nearest: int
    reached_at: int


@dataclass(frozen=True)
class Map:
    names: tuple[str, ...]  # of the places 0, 1, ...
    roads: tuple[tuple[int, int, int], ...]  # place, place, length; in the question's order
    start: int
    goal: int
    question: str

    @cached_property
    def steps(self) -> tuple[Settling, ...]:
        """Dijkstra's, until the goal is settled."""
        return tuple(_settle(self.roads, self.start, self.goal))

    @property
    def answer(self) -> str:
        return str(self.steps[-1].reached_at)

    @property
    def content(self) -> str:
        """The roads in order, their ends numbered as they first occur: names do not matter."""
        number: dict[int, int] = {}
        for a, b, _ in self.roads:
            number.setdefault(a, len(number))
            number.setdefault(b, len(number))
        roads = [(number[a], number[b], length) for a, b, length in self.roads]
        return repr((roads, number[self.start], number[self.goal]))


def _settle(roads: tuple[tuple[int, int, int], ...], start: int, goal: int) -> Iterator[Settling]:
    settled, reached = {start}, dict[int, int]()
    place, distance = start, 0
    while place != goal:
        found: list[tuple[int, int, int]] = []
        for a, b, length in roads:
            if place in (a, b) and (other := a + b - place) not in settled:
                found.append((other, length, distance + length))
                reached[other] = min(reached.get(other, distance + length), distance + length)
        nearest = min((p for p in reached if p not in settled), key=lambda p: reached[p])
        yield Settling(place, distance, tuple(found), nearest, reached[nearest])
        place, distance = nearest, reached[nearest]
        settled.add(place)


def draw(rng: random.Random, level: int) -> Map:
    """A connected map whose places have different distances from the start."""
    count, extra, longest = _LEVELS[level]
    while True:
        found = _draw(rng, count, extra, longest)
        distances = [step.reached_at for step in found.steps]
        if len(set(distances)) == len(distances) >= 2:
            return found


def _draw(rng: random.Random, count: int, extra: int, longest: int) -> Map:
    names = tuple(rng.sample(PLACES, count))
    ends = {(rng.randrange(place), place) for place in range(1, count)}
    while len(ends) < count - 1 + extra:
        a, b = sorted(rng.sample(range(count), 2))
        ends.add((a, b))
    turned = [pair if rng.random() < 0.5 else pair[::-1] for pair in sorted(ends)]
    rng.shuffle(turned)
    roads = tuple((a, b, rng.randint(1, longest)) for a, b in turned)
    start, goal = rng.sample(range(count), 2)
    style = rng.choice(_ROAD)
    listed = "; ".join(style.format(a=names[a], b=names[b], l=length) for a, b, length in roads)
    ask = rng.choice(_ASK).format(start=names[start], goal=names[goal])
    return Map(names, roads, start, goal, f"{rng.choice(_LIST).format(roads=listed)} {ask}")


def write(case: Map, rng: random.Random) -> str:
    manner = rng.choice(_MANNERS)
    lines = [_line(step, case.names, manner, rng) for step in case.steps]
    answer = f"\\boxed{{{case.answer}}}"
    ending = pick(_END, rng).format(answer=answer, goal=case.names[case.goal])
    return "\n".join([*lines, f"{ending}."])


def _line(
    step: Settling, names: tuple[str, ...], manner: tuple[float, float, float], rng: random.Random
) -> str:
    opener, aside, remark = manner
    begin = maybe(opener, _OPENER, rng)
    place = pick(_AT, rng).format(x=names[step.place], d=step.distance)
    sums = [
        pick(_SUM, rng).format(y=names[y], d=step.distance, l=length, t=total)
        for y, length, total in step.sums
    ]
    written = ", ".join(sums) if sums else pick(_NONE, rng)
    nearest = pick(_NEAREST, rng).format(w=names[step.nearest], t=step.reached_at)
    head = f"{begin}, {place}" if begin else place
    return sentence(
        f"{head}{maybe(aside, _ASIDE, rng)}: {written}; {nearest}{maybe(remark, _REMARK, rng)}"
    )


ROUTES = Task(
    "routes", "The shortest way between two places of a small map.", len(_LEVELS), draw, write
)
