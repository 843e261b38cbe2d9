"""Puzzles: who stands at a given place of a queue, told by clues of who is before whom.

The clues leave one order only. Its solution fills the queue from the front: each line lists those
whom a clue puts behind the last one, says who has to wait and for whom, and names the next.
Nothing is counted beyond the place: the hard part is to see who still has somebody in front.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from training.tasks.task import Task
from training.wording import maybe, pick, sentence

PEOPLE = (
    "Anna", "Bert", "Carl", "Dora", "Emil", "Fred", "Gina", "Hugo", "Ines", "Jack", "Kate", "Liam",
    "Nora", "Otto", "Paul", "Rita", "Sven", "Tina", "Vito", "Wanda",
)  # fmt: skip
# People, and clues beyond those that fix the order.
_LEVELS = ((4, 1), (5, 1), (5, 2), (5, 3), (6, 4), (7, 6))
_PLACE = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh"),
    *("eighth", "ninth", "tenth"),
)

_AHEAD = ("{a} is before {b}", "{a} stands in front of {b}", "{a} came sooner than {b}")
_BEHIND = ("{b} is after {a}", "{b} stands behind {a}", "{b} came later than {a}")
_INTRO = ("{n} people wait in a queue.", "A queue has {n} people.", "There is a queue of {n}.")
_ASK = ("Who is {place}?", "Who is the {place} in the queue?", "Whose place is the {place}?")

# Chance of an opener, of a lead and of a closing remark in each line, for each manner of writing.
_MANNERS = ((0.0, 0.05, 0.0), (0.2, 0.8, 0.1), (0.8, 0.1, 0.5), (0.8, 0.8, 0.7))
_OPENER = ("then", "further on", "good", "let me see", "all right", "and now", "the queue moves on")
_LEAD = (
    "the clues say that ",
    "it is clear that ",
    "we are told that ",
    "looking at the list, ",
    "reading on, ",
)
_ALONE = (
    "nobody is put before {x}",
    "no clue puts anyone ahead of {x}",
    "{x} follows no one",
    "{x} has a free view",
    "all others come after {x}",
)
_BEHIND_LAST = (
    "behind {w} could be {all}",
    "{w} is followed by {all}",
    "after {w} we think of {all}",
    "candidates behind {w} are {all}",
    "next to {w} we see {all}",
)
_WAITS = (
    "{y} waits for {z}",
    "{y} needs {z} first",
    "{y} comes after {z}",
    "{z} goes ahead of {y}",
    "{y} cannot pass {z}",
)
_CHOSEN = (
    "so {x} is {place}",
    "hence {x} takes the {place} place",
    "that makes {x} the {place}",
    "this leaves {x} to be {place}",
    "the {place} must be {x}",
    "we put {x} {place}",
)
_REMARK = (
    ", as it has to be",
    " without any doubt",
    ", one more place is filled",
    " in this queue",
    ", and we cross the name off",
)
_END = (
    "The answer is {answer}",
    "So it is {answer}",
    "We were asked for {answer}",
    "That place belongs to {answer}",
    "Therefore {answer}",
)


@dataclass(frozen=True, slots=True)
class Placing:
    """One step: who is thought of behind the last one, who of them waits for whom, who is next."""

    candidates: tuple[int, ...]  # in the order of the clues
    waiting: tuple[tuple[int, int], ...]  # (who, for whom)


@dataclass(frozen=True, slots=True)
class Queue:
    """Person i stands at place i; `clues` are pairs (earlier, later) in the question's order."""

    names: tuple[str, ...]
    clues: tuple[tuple[int, int], ...]
    turned: tuple[bool, ...]  # which clues name the later one first
    asked: int
    question: str

    @property
    def answer(self) -> str:
        return self.names[self.asked]

    @property
    def content(self) -> str:
        return repr((len(self.names), self.clues, self.turned, self.asked))

    @property
    def steps(self) -> tuple[Placing, ...]:
        return tuple(self._step(place) for place in range(self.asked + 1))

    def _step(self, place: int) -> Placing:
        behind = [later for earlier, later in self.clues if earlier == place - 1]
        waiting: list[tuple[int, int]] = []
        for who in behind:
            ahead = [e for e, later in self.clues if later == who and e >= place]
            if ahead:
                waiting.append((who, ahead[0]))
        return Placing(tuple(behind), tuple(waiting))


def draw(rng: random.Random, level: int) -> Queue:
    people, extra = _LEVELS[level]
    names = tuple(rng.sample(PEOPLE, people))
    neighbours = [(i, i + 1) for i in range(people - 1)]
    farther = [(i, j) for i in range(people) for j in range(i + 2, people)]
    clues = [*neighbours, *rng.sample(farther, extra)]
    rng.shuffle(clues)
    turned = tuple(rng.random() < 0.5 for _ in clues)
    asked = rng.randrange(people // 2, people)
    ahead, behind = rng.choice(_AHEAD), rng.choice(_BEHIND)
    said = [
        (behind if is_turned else ahead).format(a=names[a], b=names[b])
        for (a, b), is_turned in zip(clues, turned, strict=True)
    ]
    question = [
        rng.choice(_INTRO).format(n=people),
        *(f"{clue}." for clue in said),
        rng.choice(_ASK).format(place=_PLACE[asked]),
    ]
    return Queue(names, tuple(clues), turned, asked, " ".join(question))


def write(case: Queue, rng: random.Random) -> str:
    manner = rng.choice(_MANNERS)
    lines = [_line(place, step, case.names, manner, rng) for place, step in enumerate(case.steps)]
    ending = pick(_END, rng).format(answer=f"\\boxed{{{case.answer}}}")
    return "\n".join([*lines, f"{ending}."])


def _line(
    place: int,
    step: Placing,
    names: Sequence[str],
    manner: tuple[float, float, float],
    rng: random.Random,
) -> str:
    opener, lead, remark = manner
    begin, leading = maybe(opener, _OPENER, rng), maybe(lead, _LEAD, rng)
    if place == 0:
        parts = [pick(_ALONE, rng).format(x=names[0])]
    else:
        everyone = " and ".join(names[who] for who in step.candidates)
        parts = [pick(_BEHIND_LAST, rng).format(w=names[place - 1], all=everyone)]
    parts += [pick(_WAITS, rng).format(y=names[y], z=names[z]) for y, z in step.waiting]
    parts.append(pick(_CHOSEN, rng).format(x=names[place], place=_PLACE[place]))
    head = f"{begin}, {leading}" if begin else leading
    return sentence(f"{head}{', '.join(parts)}{maybe(remark, _REMARK, rng)}")


PUZZLES = Task("puzzles", "Who stands where in a queue, from clues.", len(_LEVELS), draw, write)
