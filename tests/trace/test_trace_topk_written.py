"""What a server says about the tokens that it writes: read exactly, or refused with a reason."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from divtok.divergences.arithmetic import jsd_bits
from divtok.endpoints.client import Unusable
from divtok.errors import ModelError
from divtok.trace.reader import Reader, load_reader
from divtok.trace.topk.answers import Place, TokenNames, known_of
from divtok.trace.topk.bounds import jsd_bounds
from divtok.trace.topk.known import FLOAT32, Known
from divtok.trace.topk.written import is_told_by_text, read_prompt, read_written
from divtok.trace.topk.written_pair import Numbers, Writer, WrittenPair


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


NAMES = TokenNames(Words(), 7)


def entry(token: str, logprob: Any, **listed: float) -> dict[str, Any]:
    top = [{"token": name, "logprob": value} for name, value in listed.items()]
    return {"token": token, "logprob": logprob, "top_logprobs": top}


def choice(*entries: dict[str, Any], ids: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = {"delta": {}, "logprobs": {"content": list(entries)}}
    return found if ids is None else found | {"token_ids": ids}


BY_ID = entry("token_id:3", -0.5, **{"token_id:3": -0.5, "token_id:6": -1.5})
BY_TEXT = entry("a", -0.5, **{"a": -0.5, " b": -1.5})
AMBIGUOUS = entry("a", -0.5, **{"a": -0.5, "c": -1.5})


def test_tokens_are_told_by_their_ids_or_by_texts_of_one_token() -> None:
    by_id = Place({3: -0.5, 6: -1.5}, 3, -0.5)
    assert read_written(choice(BY_ID, BY_ID), NAMES, 2) == [by_id, by_id]
    assert read_written(choice(BY_ID, ids=[3]), NAMES, 2) == [by_id]
    assert read_written(choice(BY_TEXT), NAMES, 2) == [Place({1: -0.5, 2: -1.5}, 1, -0.5)]
    # The id says which of two like texts was written; the list still cannot tell.
    twin = entry("c", -0.5, **{"c": -0.5, " b": -1.5})
    assert read_written(choice(twin, ids=[4]), NAMES, 2) == [
        Place({2: -1.5}, 4, -0.5, complete=False)
    ]
    (place,) = read_written(choice(AMBIGUOUS), NAMES, 2)
    assert (place.complete, place.cap) == (False, 1.0)


def test_what_brings_no_tokens_has_no_places() -> None:
    for part in ({}, {"logprobs": None}, {"logprobs": {"content": None}}, choice()):
        assert read_written(part, NAMES, 2) == []


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"logprobs": {"content": {}}}, "not a list of objects"),
        ({"logprobs": {"content": [1]}}, "not a list of objects"),
        (choice(BY_ID, ids=[3, 4]), "log-probs of 1 tokens beside the ids"),
        (choice(BY_ID, ids=7), "beside the ids 7"),
        (choice(BY_ID, ids=[6]), "stand at the token 6"),
        (choice(BY_TEXT, ids=[2]), "of 'a' stand at the token 2"),
        (choice(BY_ID, ids=["x"]), "'x' is not a token id"),
        (choice(entry("c", -0.5, **{"a": -0.5, " b": -1.5})), "not that of one token alone"),
        (choice(entry("zz", -0.5, **{"a": -0.5, " b": -1.5})), "not that of one token alone"),
        (choice(entry("a", -0.5, a=-0.5)), "1 likely tokens where 2 were asked for"),
        (choice({**BY_TEXT, "top_logprobs": None}), "top_logprobs are not a list"),
        (choice({**BY_TEXT, "top_logprobs": [{"logprob": 1}] * 2}), "top_logprobs are not a list"),
        (choice({**BY_TEXT, "token": None}), "is not text"),
        (choice(entry("a", "x", **{"a": -0.5, " b": -1.5})), "a log-prob is 'x'"),
        (choice({**BY_ID, "top_logprobs": BY_ID["top_logprobs"][:1] * 2}), "listed twice"),
        (choice(entry("a", 0.0, **{"a": 0.0, " b": -9999.0})), "after top-p or top-k"),
        (choice(entry("token_id:9", -1.0, **{"token_id:9": -1.0, "token_id:1": -2.0})), "outside"),
    ],
)
def test_what_cannot_be_told_is_refused(part: dict[str, Any], said: str) -> None:
    with pytest.raises(Unusable, match=said):
        read_written(part, NAMES, 2)


def test_a_whole_vocabulary_may_hold_tokens_without_probability() -> None:
    listed = {f"token_id:{i}": 0.0 if i == 1 else -9999.0 for i in range(7)}
    (place,) = read_written(choice(entry("token_id:1", 0.0, **listed)), NAMES, 100)
    assert len(place.logprobs) == 7


def test_who_tells_by_texts_alone() -> None:
    assert is_told_by_text(choice(BY_TEXT))
    assert not is_told_by_text(choice(BY_ID))
    assert not is_told_by_text(choice(BY_TEXT, ids=[1]))


def test_the_prompt_of_the_server() -> None:
    assert read_prompt(None, NAMES) is None
    assert read_prompt([1, 2], NAMES) == (1, 2)
    for wrong, said in (([], "not a list"), ("12", "not a list"), ([7], "outside"), ([-1], "not")):
        with pytest.raises(Unusable, match=said):
            read_prompt(wrong, NAMES)


@pytest.fixture(scope="module")
def q() -> Reader:
    return load_reader("divtok/tiny-0.3m", device="cpu")


def places_of(logprobs: np.ndarray[Any, Any], tokens: list[int], k: int) -> list[Place]:
    found: list[Place] = []
    for row, token in zip(logprobs, tokens, strict=True):
        listed = np.argsort(-row)[:k].tolist()
        found.append(Place({i: float(row[i]) for i in listed}, token, float(row[token])))
    return found


@pytest.mark.parametrize("width", [784, 900, 700, None])
@pytest.mark.parametrize("k", [1, 3, 20, 300])
def test_the_true_divergence_is_within_the_bounds(q: Reader, width: int | None, k: int) -> None:
    """Whatever p has beyond its list, and however wide it is."""
    rng = np.random.default_rng(k)
    true_width = width or 790
    shared = min(true_width, 784)
    logits_p = rng.normal(0, 4, (30, true_width))
    logits_q = rng.normal(0, 2, (30, 784))
    logits_q[:, :shared] += 0.8 * logits_p[:, :shared]
    logits_q[5] = logits_q[6] = 0.0  # even ones
    log_p = (logits_p - np.log(np.exp(logits_p).sum(1, keepdims=True))).astype(np.float32)
    tokens = rng.integers(0, 700, 30).tolist()
    pair = WrittenPair(Writer("p", q.tokenizer, width, frozenset(), FLOAT32), q)
    rows = Numbers(pair).of(places_of(log_p, tokens, k), torch.tensor(logits_q).float())

    def cut(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        kept = logits[:, :shared]
        return kept - np.log(np.exp(kept).sum(1, keepdims=True))

    truth = jsd_bits(cut(logits_p), cut(logits_q))
    # p's width is not known: the tokens beyond the tokenizer's may be cut off or not.
    for row, true in zip(rows, truth, strict=True):
        assert row["jsd_low_bits"] - 1e-6 <= true <= row["jsd_high_bits"] + 1e-6
        middle = (row["jsd_low_bits"] + row["jsd_high_bits"]) / 2
        assert row["jsd_bits"] == pytest.approx(middle, abs=1e-9)
        assert math.isnan(row["entropy_p"])
    if k == 300:
        widths = [row["jsd_high_bits"] - row["jsd_low_bits"] for row in rows]
        assert np.median(widths) < 0.01 or width in (900, None)


def test_the_bounds_of_a_few_tokens_at_a_time_are_those_of_all(q: Reader) -> None:
    rng = np.random.default_rng(1)
    log_p = torch.tensor(rng.normal(0, 4, (24, 784))).log_softmax(-1).float().numpy()
    logits = torch.tensor(rng.normal(0, 4, (24, 784))).float()
    places = places_of(log_p, [7] * 24, 5)
    pair = WrittenPair(Writer("p", q.tokenizer, 784, frozenset()), q)
    numbers = Numbers(pair)
    parts = [
        row
        for at in range(0, 24, 4)
        for row in numbers.of(places[at : at + 4], logits[at : at + 4])
    ]
    whole = Numbers(pair).of(places, logits)
    for part, row in zip(parts, whole, strict=True):
        assert part == pytest.approx(row, nan_ok=True, abs=1e-9)


def test_likely_tokens_of_q_and_one_mass_say_as_much_as_all(q: Reader) -> None:
    rng = np.random.default_rng(2)
    logits_p = rng.normal(0, 3, (16, 784))
    log_p = torch.tensor(logits_p).log_softmax(-1).float().numpy()
    logits = torch.tensor(0.7 * logits_p + rng.normal(0, 1, (16, 784))).float()
    places = places_of(log_p, [7] * 16, 20)
    p, _ = known_of(places, FLOAT32)
    log_q = logits.double().log_softmax(-1).numpy()
    whole = Known(np.tile(np.arange(784), (16, 1)), log_q, np.zeros(16))
    pair = WrittenPair(Writer("p", q.tokenizer, 784, frozenset(), FLOAT32), q)
    rows = Numbers(pair).of(places, logits)
    for name, all_of_q in zip(("jsd_low_bits", "jsd_high_bits"), jsd_bounds(p, whole), strict=True):
        np.testing.assert_allclose([row[name] for row in rows], all_of_q, atol=2e-5)


def test_a_list_that_becomes_shorter_or_too_heavy_is_refused(q: Reader) -> None:
    log_p = torch.zeros(2, 784).log_softmax(-1).numpy()
    logits = torch.zeros(2, 784)
    pair = WrittenPair(Writer("p", q.tokenizer, 784, frozenset(), FLOAT32), q)
    numbers = Numbers(pair)
    (row, _) = numbers.of(places_of(log_p, [7, 8], 784), logits)
    assert row["jsd_bits"] == pytest.approx(0.0, abs=1e-6)
    assert "jsd_low_bits" not in row
    assert row["entropy_p"] == pytest.approx(math.log(784), abs=1e-5)
    with pytest.raises(Unusable, match="whole vocabulary at some tokens only"):
        numbers.of(places_of(log_p, [7, 8], 783), logits)
    heavy = [Place({1: -0.1, 2: -0.1}, 1, -0.1)]
    with pytest.raises(Unusable, match="no distribution"):
        Numbers(pair).of(heavy, logits[:1])


def test_logits_that_are_no_distribution_are_marked(q: Reader) -> None:
    logits = torch.zeros(2, 784)
    logits[1, 3] = float("nan")
    pair = WrittenPair(Writer("p", q.tokenizer, 784, frozenset(), FLOAT32), q)
    log_p = torch.zeros(2, 784).log_softmax(-1).numpy()
    for k in (5, 784):
        rows = Numbers(pair).of(places_of(log_p, [7, 8], k), logits)
        assert [row["finite_q"] for row in rows] == [True, False]


def test_an_auxiliary_with_other_tokens_is_refused(q: Reader) -> None:
    with pytest.raises(ModelError, match="do not share their vocabulary"):
        WrittenPair(Writer("p", Words(), 7, frozenset()), q)
