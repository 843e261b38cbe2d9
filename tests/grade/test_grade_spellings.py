"""Thousands of constructed pairs: equal values in many spellings, and other values beside them."""

from __future__ import annotations

import random
from itertools import product

import pytest
from maths_spellings import KINDS

from divtok.grade import GRADERS
from divtok.grade.answers import start_judging
from divtok.grade.grader import Compare
from divtok.grade.judgement import Judgement
from divtok.grade.maths.equivalence import decide
from divtok.records import Verdict

ROUNDS = 4
ALL_PAIRS = 4_900


def drawn(kind: str, seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs of equal values, reflexive and in both orders, and pairs of different ones."""
    spellings, others = KINDS[kind](random.Random(f"{kind} {seed}"))
    return list(product(spellings, spellings)), list(product(spellings, others))


@pytest.mark.parametrize("kind", KINDS)
def test_the_exact_rules_never_contradict_how_a_pair_was_made(kind: str) -> None:
    decided = 0
    for seed in range(ROUNDS):
        equal, different = drawn(kind, seed)
        for expected, pairs in ((Verdict.CORRECT, equal), (Verdict.INCORRECT, different)):
            for gold, answer in pairs:
                one = decide(gold=gold, answer=answer)
                other = decide(gold=answer, answer=gold)
                for found in (one, other):
                    if found is not None:
                        assert found.verdict in (expected, Verdict.UNDETERMINED), (gold, answer)
                assert (one is None) == (other is None), (gold, answer)
                if one is not None and other is not None:
                    assert one.verdict is other.verdict, (gold, answer)
                    decided += one.verdict is expected
    assert decided > 0


def judged(compare: Compare, pairs: list[tuple[str, str]]) -> list[Verdict]:
    started = [start_judging(compare, gold, answer, "nothing", 10.0) for gold, answer in pairs]
    done = [each if isinstance(each, Judgement) else each.result(300) for each in started]
    return [judgement.verdict for judgement in done]


@pytest.mark.slow
def test_all_constructed_pairs_through_the_grader() -> None:
    checked = undetermined = seed = 0
    with GRADERS.get("maths").open(2) as compare:
        while checked < ALL_PAIRS:
            for kind in KINDS:
                equal, different = drawn(kind, 1_000 + seed)
                for wrong, pairs in ((Verdict.INCORRECT, equal), (Verdict.CORRECT, different)):
                    found = judged(compare, pairs)
                    back = judged(compare, [(answer, gold) for gold, answer in pairs])
                    for pair, verdict, other in zip(pairs, found, back, strict=True):
                        assert verdict is other, pair
                        assert verdict is not wrong, pair
                    checked += len(pairs)
                    undetermined += found.count(Verdict.UNDETERMINED)
            seed += 1
    print(f"{checked} pairs, {undetermined} undetermined")
    assert undetermined <= 0.02 * checked
