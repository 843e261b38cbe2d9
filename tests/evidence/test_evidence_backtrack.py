"""The attention chain, worked by hand, and against the direct computation on random matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import byte_level_tokenizer
from uqac_reference import direct_chain

from divtok.evidence.uqac.backtrack import backtrack, most_similar, stop_tokens


def rows_from(table: dict[int, dict[int, float]], length: int):
    """Attention by source and column, zero elsewhere; sources not in the table attend nowhere."""

    def rows(positions):
        found = np.zeros((len(positions), length))
        for place, position in enumerate(positions):
            for column, value in table.get(position, {}).items():
                found[place, column] = value
        return found

    return rows


def nothing_skipped(length: int, prompt: int = 2) -> np.ndarray:
    return np.arange(length) < prompt


def test_a_strong_chain_is_followed_token_by_token() -> None:
    # Prompt 0-1, response 2-9, answer 9. Its predictor 8 looks at 5; 5's predictor 4 looks at 3.
    rows = rows_from({8: {5: 0.9}, 4: {3: 0.8}, 2: {}}, 10)
    assert backtrack(rows, [9], nothing_skipped(10)) == (3, 5, 9)


def test_scores_of_several_sources_add_up() -> None:
    # Column 4 gets 0.3 from each predictor: 0.6 in all, more than 0.5 of column 3. With buffer 3
    # all are taken while the chain is short.
    rows = rows_from({8: {4: 0.3, 3: 0.5}, 9: {4: 0.3}}, 11)
    assert backtrack(rows, [9, 10], nothing_skipped(11)) == (3, 4, 9, 10)


def test_at_most_three_tokens_join_in_one_round() -> None:
    rows = rows_from({11: {4: 0.9, 6: 0.8, 8: 0.7, 10: 0.6}}, 13)
    assert backtrack(rows, [12], nothing_skipped(13)) == (4, 6, 8, 12)


def test_only_five_columns_of_a_source_are_looked_at_once_something_is_found() -> None:
    # The five strongest columns are 3 stop tokens, the prompt and 5; the sixth, 4, is never scored.
    skipped = nothing_skipped(13)
    skipped[[6, 7, 8]] = True
    attention = {1: 0.9, 6: 0.8, 7: 0.7, 8: 0.65, 5: 0.6, 4: 0.55}
    rows = rows_from({11: attention}, 13)
    assert backtrack(rows, [12], skipped) == (5, 12)


def test_a_short_chain_walks_past_five_columns_that_cannot_join() -> None:
    skipped = nothing_skipped(13)
    skipped[[6, 7, 8, 9]] = True
    rows = rows_from({11: {1: 0.9, 6: 0.8, 7: 0.7, 8: 0.65, 9: 0.6, 4: 0.1}}, 13)
    assert backtrack(rows, [12], skipped) == (4, 12)


def test_weak_tokens_join_only_while_the_chain_is_short() -> None:
    # Every source gives 0.1 to three earlier columns. The chain wants 5 + 1 tokens. Round one takes
    # three (1, 2 + 1, 3 + 2 are all below 6) and round two none below the threshold beyond 6:
    # 4 + 0 < 6 joins, then 5 + 1 = 6 stops the round; the next round adds one more and is full.
    table = {p: {p - 2: 0.1, p - 4: 0.09, p - 6: 0.08} for p in range(8, 40)}
    chain = backtrack(rows_from(table, 41), [40], nothing_skipped(41))
    assert len(chain) == 6
    assert {37, 35, 33, 40} <= set(chain)
    assert chain == tuple(sorted(p + 1 for p in _direct(table, 41, [40])))


def _direct(table: dict[int, dict[int, float]], length: int, answer: list[int]) -> list[int]:
    matrix = rows_from(table, length)(range(length))
    return direct_chain(matrix, answer, nothing_skipped(length).tolist())


def test_the_first_response_token_is_zero_not_minus_one() -> None:
    # Prompt 0-1; the response's first token stands at 2, its predictor is the prompt's last token.
    rows = rows_from({4: {2: 0.9}}, 6)
    assert backtrack(rows, [5], nothing_skipped(6)) == (2, 5)


def test_a_token_whose_turn_was_already_is_passed_over() -> None:
    # 8 looks at 9's own answer neighbour 8 (token 8 is in the answer): it joins no second time.
    rows = rows_from({7: {6: 0.9}, 8: {8: 0.9, 6: 0.2}}, 10)
    assert backtrack(rows, [8, 9], nothing_skipped(10)) == (6, 8, 9)


def test_without_anything_to_look_at_the_chain_is_the_answer() -> None:
    assert backtrack(rows_from({}, 10), [8, 9], nothing_skipped(10)) == (8, 9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(4, 40), st.booleans())
def test_random_matrices_give_the_direct_chain(
    seed: int, answer: int, length: int, sharp: bool
) -> None:
    rng = np.random.default_rng(seed)
    prompt = int(rng.integers(1, length))
    size = prompt + length + answer
    matrix = np.tril(rng.random((size, size)) ** (8 if sharp else 1), -1)
    matrix[:prompt] = 0
    matrix[:, 0] = 0
    stop = (np.arange(size) < prompt) | (rng.random(size) < 0.3)
    tokens = list(range(size - answer, size))
    expected = [p + 1 for p in direct_chain(matrix, tokens, stop.tolist())]
    assert list(backtrack(lambda at: matrix[list(at)], tokens, stop)) == expected


def test_the_most_similar_tokens_and_the_answer_are_kept() -> None:
    chain = tuple(range(10, 26))  # 24 and 25 are the answer
    similarity = np.linspace(-0.2, 0.55, 16)  # 10..13 lie below zero
    kept = most_similar(chain, [24, 25], similarity)
    assert kept == (14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
    longer = most_similar(tuple(range(30)), [29], np.linspace(0, 1, 30))
    assert longer == (*range(19, 29), 29)


def test_stop_tokens_are_blank_words_and_marks() -> None:
    tokenizer = byte_level_tokenizer()
    pieces = [" the", " ", "\n", ".", "4", " apples", "\\", "{", "=", "+"]
    ids = [tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in pieces]
    whole = {piece: i[0] for piece, i in zip(pieces, ids, strict=True) if len(i) == 1}
    assert {" the", " ", ".", "4", "\\", "{", "=", "+"} <= whole.keys()
    marks = dict(zip(whole, stop_tokens(tokenizer, list(whole.values())).tolist(), strict=True))
    assert {piece for piece, stops in marks.items() if not stops} == {"4", "=", "+"} | (
        {" apples"} & whole.keys()
    )


@pytest.mark.parametrize("word", ["The", "ourselves", "WHICH", "…", "’"])
def test_stop_words_are_told_whatever_their_case(word: str) -> None:
    class One:
        def decode(self, *_: object, **__: object) -> str:
            return f" {word}\t"

    assert stop_tokens(One(), [7]).tolist() == [True]  # type: ignore[arg-type]
