"""What servers say about prompts, in both forms: read exactly, or refused with a reason."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from divtok.endpoints.client import Unusable
from divtok.trace.topk.alignment import rounding_of_places
from divtok.trace.topk.answers import (
    Place,
    TokenNames,
    has_echo,
    has_prompt_logprobs,
    known_of,
    read_echo,
    read_next,
    read_prompt_logprobs,
)
from divtok.trace.topk.known import FLOAT32, Rounding

BFLOAT16 = Rounding(2.0**-8, 4e-6)


class Words:
    """A tokenizer in which tokens 3 and 4 look alike and 5 is half a character."""

    eos_token_id = 0
    texts = ("<end>", "a", " b", "c", "c", "\ufffd", " d")

    def get_vocab(self) -> dict[str, int]:
        return {f"piece{i}": i for i in range(len(self.texts))}

    def decode(self, token_ids: Any, *_: Any, **__: Any) -> str:
        return "".join(self.texts[i] for i in token_ids)

    def __len__(self) -> int:
        return len(self.texts)


SENT = [1, 2, 3]


@pytest.fixture
def names() -> TokenNames:
    return TokenNames(Words(), 7)


def choice(**parts: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": "", **parts}]}


def numbered(*places: dict[int, float] | None) -> dict[str, Any]:
    """As vLLM writes them, the token itself first; the rank counts from the most likely one."""
    entries = [
        None
        if place is None
        else {
            str(i): {"logprob": v, "rank": sorted(place.values(), reverse=True).index(v) + 1}
            for i, v in place.items()
        }
        for place in places
    ]
    return choice(prompt_logprobs=entries)


def echoed(tokens: list[Any], own: list[Any], top: list[Any]) -> dict[str, Any]:
    return choice(logprobs={"tokens": tokens, "token_logprobs": own, "top_logprobs": top})


def test_both_forms_say_the_same(names: TokenNames) -> None:
    by_number = numbered(None, {2: -0.5, 1: -1.5, 6: -2.0}, {3: -3.0, 1: -0.25, 2: -2.0})
    by_id = echoed(
        ["token_id:1", "token_id:2", "token_id:3"],
        [None, -0.5, -3.0],
        [
            None,
            {"token_id:2": -0.5, "token_id:1": -1.5, "token_id:6": -2.0},
            {"token_id:3": -3.0, "token_id:1": -0.25, "token_id:2": -2.0},
        ],
    )
    by_text = echoed(
        ["a", " b", "c"],
        [None, -0.5, -3.0],
        [None, {" b": -0.5, "a": -1.5, " d": -2.0}, {"c": -3.0, "a": -0.25, " b": -2.0}],
    )
    one = read_prompt_logprobs(by_number, SENT, 1, names)
    two = read_echo(by_id, SENT, 1, names)
    three = read_echo(by_text, SENT, 1, names)
    expected = [({2: -0.5, 1: -1.5, 6: -2.0}, 2, -0.5), ({3: -3.0, 1: -0.25, 2: -2.0}, 3, -3.0)]
    assert [(p.logprobs, p.token, p.own) for p in one] == expected
    assert [(p.logprobs, p.token, p.own) for p in two] == expected
    assert [p.complete for p in (*one, *two)] == [True] * 4
    assert (three[0].logprobs, three[0].complete) == (expected[0][0], True)
    # "c" is two tokens' text: of the list only the others are known, of the token itself its own.
    assert (three[1].logprobs, three[1].complete) == ({1: -0.25, 2: -2.0}, False)
    known, own = known_of(three, FLOAT32)
    assert own.tolist() == [-0.5, -3.0]
    assert known.ids[1].tolist()[:3] == [3, 1, 2]
    np.testing.assert_allclose(known.cap, [math.exp(-2.0), 1.0])


def test_what_the_list_says_of_other_tokens() -> None:
    listed = {1: -0.5, 2: -1.5, 3: -4.0}
    assert Place(listed, 1, -0.5).cap == pytest.approx(math.exp(-4.0))
    # The token that came may be listed beside the likely ones, so its place says nothing.
    assert Place(listed, 3, -4.0).cap == pytest.approx(math.exp(-1.5))
    assert Place(listed, 3, -4.0, ranked=True).cap == pytest.approx(math.exp(-4.0))
    assert Place({1: -0.5}, 1, -0.5).cap == 1.0
    assert Place({1: -0.5}, 1, -0.5, ranked=True).cap == pytest.approx(math.exp(-0.5))
    assert Place(listed, 1, -0.5, complete=False).cap == 1.0
    assert Place({}, 1, None).cap == 1.0


@pytest.mark.parametrize(("rank", "ranked"), [(1, True), (3, True), (4, False), (None, False)])
def test_ranks_tell_whether_a_token_is_one_of_the_likely(
    names: TokenNames, rank: int | None, ranked: bool
) -> None:
    entry = {"2": {"logprob": -1.0, "rank": rank}, "1": {"logprob": -0.9}, "6": {"logprob": -0.8}}
    places = read_prompt_logprobs(choice(prompt_logprobs=[None, entry]), [1, 2], 1, names)
    assert places[0].ranked is ranked


def test_the_token_that_had_to_be_written_may_follow(names: TokenNames) -> None:
    answer = echoed(["a", " b", " d"], [None, -0.5, -1.0], [None, {" b": -0.5}, {" d": -1.0}])
    assert len(read_echo(answer, [1, 2], 1, names)) == 1
    with pytest.raises(Unusable, match="echoes 3 tokens, 1 were sent"):
        read_echo(answer, [1], 0, names)


def test_parts_of_characters_name_no_token(names: TokenNames) -> None:
    answer = echoed(["a", "\ufffd"], [None, -0.5], [None, {"\ufffd": -0.5, " b": -1.0}])
    (place,) = read_echo(answer, [1, 5], 1, names)
    assert (place.logprobs, place.complete, place.own) == ({2: -1.0}, False, -0.5)


def test_a_server_with_other_blanks_names_no_token(names: TokenNames) -> None:
    answer = echoed(["a", "b"], [None, -0.5], [None, {"b": -0.5, "a": -1.0}])
    (place,) = read_echo(answer, [1, 2], 1, names)
    assert (place.logprobs, place.complete, place.own) == ({}, False, -0.5)


def test_the_place_behind_a_prompt(names: TokenNames) -> None:
    by_text = echoed([" b"], [-0.5], [{" b": -0.5, "a": -1.0}])
    by_id = echoed(["token_id:2"], [-0.5], [{"token_id:2": -0.5, "token_id:1": -1.0}])
    for answer in (by_text, by_id):
        place = read_next(answer, names)
        assert (place.logprobs, place.token, place.own) == ({2: -0.5, 1: -1.0}, 2, -0.5)
    with pytest.raises(Unusable, match="2 written tokens"):
        read_next(echoed(["a", "a"], [0.0, 0.0], [{}, {}]), names)


def test_forms_are_recognised() -> None:
    assert has_prompt_logprobs(numbered(None))
    assert not has_prompt_logprobs(choice(prompt_logprobs=None))
    assert not has_prompt_logprobs(choice())
    assert has_echo(echoed(["a", "b"], [None, 0.0], [None, {}]), [1, 2])
    assert not has_echo(echoed(["b"], [0.0], [{}]), [1, 2])
    assert not has_echo(choice(logprobs=None), [1])


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([], "no choices"),
        ({"choices": []}, "no choices"),
        ({"choices": [None]}, "no choices"),
        (choice(), "no prompt_logprobs"),
        (numbered(None, {2: -0.5}), "prompt_logprobs of 2 tokens, 3 were sent"),
        (choice(prompt_logprobs=[None, [1], None]), "position 1 is not a list"),
        (choice(prompt_logprobs=[None, {"2": -0.5}, None]), "token 2 is not an object"),
        (choice(prompt_logprobs=[None, {"x": {"logprob": 0}}, None]), "'x' is not a token id"),
        (choice(prompt_logprobs=[None, {"-1": {"logprob": 0}}, None]), "'-1' is not a token id"),
        (choice(prompt_logprobs=[None, {"7": {"logprob": 0}}, None]), "7 lies outside"),
        (choice(prompt_logprobs=[None, {"2": {"logprob": None}}, None]), "a log-prob is None"),
        (choice(prompt_logprobs=[None, {"2": {"logprob": "1"}}, None]), "a log-prob is '1'"),
        (choice(prompt_logprobs=[None, {"2": {"logprob": True}}, None]), "a log-prob is True"),
        (choice(prompt_logprobs=[None, {"2": {"logprob": -(10**400)}}, None]), "a log-prob is -1"),
        (
            choice(prompt_logprobs=[None, {"2": {"logprob": 0}, "02": {"logprob": -1}}, None]),
            "token 2 is listed twice",
        ),
    ],
)
def test_wrong_prompt_logprobs_are_refused(answer: Any, words: str, names: TokenNames) -> None:
    with pytest.raises(Unusable, match=words):
        read_prompt_logprobs(answer, SENT, 1, names)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (choice(), "no logprobs"),
        (choice(logprobs=[]), "no logprobs"),
        (echoed(["a"], [None], [None]), "echoes 1 tokens, 3 were sent"),
        (echoed(["a", " b", "c"], [None, 0.0], [None, {}, {}]), "not lists of one length"),
        (choice(logprobs={"tokens": ["a"], "token_logprobs": [0.0]}), "not lists of one length"),
        (echoed(["a", 2, "c"], [None, 0, 0], [None, {}, {}]), "tokens are not texts"),
        (echoed(["a", " d", "c"], [None, 0, 0], [None, {}, {}]), "' d' at position 1, where"),
        (
            echoed(["token_id:1", "token_id:6", "token_id:3"], [None, 0, 0], [None, {}, {}]),
            "'token_id:6' at position 1, where token 2",
        ),
        (echoed(["a", " b", "c"], [None, "0", 0], [None, {}, {}]), "a log-prob is '0'"),
        (echoed(["a", " b", "c"], [None, 0, 0], [None, {" b": None}, {}]), "a log-prob is None"),
    ],
)
def test_wrong_echoes_are_refused(answer: Any, words: str, names: TokenNames) -> None:
    with pytest.raises(Unusable, match=words):
        read_echo(answer, SENT, 1, names)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (numbered(None, None, {3: -1.0}), "token itself at scored position 0"),
        (numbered(None, {2: -1.0}, {1: -1.0}), "token itself at scored position 1"),
        (numbered(None, {2: -1.0}, {}), "token itself at scored position 1"),
    ],
)
def test_a_missing_place_cannot_be_scored(answer: Any, words: str, names: TokenNames) -> None:
    with pytest.raises(Unusable, match=words):
        known_of(read_prompt_logprobs(answer, SENT, 1, names), FLOAT32)


def test_two_values_of_one_token_are_refused() -> None:
    hundredths = Rounding(0.0, 0.005)
    for listed, own, rounding in (
        (-0.1, -2.0, hundredths),
        (-0.11, -0.1, FLOAT32),  # nothing but rounding explains a difference
        (-0.12, -0.1051, hundredths),
        (-9999.0, -0.1, BFLOAT16),
        (-math.inf, -0.1, BFLOAT16),
    ):
        for places in ([Place({2: listed}, 2, own)], [Place({2: own}, 2, listed)]):
            with pytest.raises(Unusable, match="two log-probs of one token"):
                known_of(places, rounding)


def test_two_values_of_one_token_may_differ_by_their_rounding() -> None:
    for listed, own, rounding in (
        (-0.11, -0.1051, Rounding(0.0, 0.005)),
        (-12.375, -12.35, BFLOAT16),
        (-9999.0, -math.inf, FLOAT32),  # both are nothing
    ):
        known, found = known_of([Place({2: listed, 1: -3.0}, 2, own)], rounding)
        entries = dict(zip(known.ids[0].tolist(), known.logprobs[0].tolist(), strict=True))
        assert (entries[2], found[0]) == (listed, own)


@pytest.mark.parametrize("coarse", ["lists", "own", "listed own"])
def test_precision_is_the_coarsest_of_lists_and_tokens(coarse: str) -> None:
    """A server may round its lists and not what it says of the tokens, or the other way round."""
    rng = np.random.default_rng(5)
    places: list[Place] = []
    for values in np.log(rng.dirichlet([0.5] * 6, 40)).tolist():
        listed = dict(enumerate(values[:4]))
        own = values[3]
        if coarse == "lists":
            listed = {i: round(value, 2) for i, value in listed.items()}
        elif coarse == "own":
            own = round(own, 2)
        else:
            listed[3] = round(own, 2)
        places.append(Place(listed, 3, own))
    found = rounding_of_places(places)
    assert found.absolute == pytest.approx(FLOAT32.absolute + 0.01)
    # Two decimals hide whether they were made from float16, which is next to nothing beside them.
    assert found.relative <= FLOAT32.relative + 2.0**-10
    exact = [Place({1: values}, 1, values) for values in rng.normal(size=40).tolist()]
    assert rounding_of_places(exact) == FLOAT32  # without other tokens there is nothing to tell


def test_broken_numbers_are_kept_to_be_told() -> None:
    known, _ = known_of([Place({2: math.nan}, 2, math.nan), Place({1: math.inf}, 2, -1.0)], FLOAT32)
    assert math.isnan(known.logprobs[0, 0])
    assert known.logprobs[1, 1] == math.inf


def test_ids_have_a_limit_without_a_width() -> None:
    names = TokenNames(Words())
    assert names.by_number("2147483647") == 2**31 - 1
    for number in ("2147483648", "9" * 18, "9" * 4000):
        with pytest.raises(Unusable, match="token id"):
            names.by_number(number)


def test_an_echo_of_something_else_is_none() -> None:
    for tokens in (5, True, "abc", {"a": 1}, None):
        assert not has_echo(choice(logprobs={"tokens": tokens}), SENT)


def test_a_list_far_longer_than_the_others_takes_no_table_of_its_length() -> None:
    short = Place({1: -0.1}, 1, -0.1)
    long = Place(dict.fromkeys(range(1, 6_000), -9.0), 1, -9.0)
    with pytest.raises(Unusable, match="a list of 5999 log-probs"):
        known_of([long, *[short] * 3_000], FLOAT32)
    known_of([long, *[short] * 100], FLOAT32)
