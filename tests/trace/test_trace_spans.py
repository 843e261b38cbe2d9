"""From the characters of the final answer to its tokens, and the end of the turn."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_samples import byte_level_tokenizer

from divtok.errors import DataError
from divtok.protocols.extract import find_answer
from divtok.trace.spans import (
    answer_tokens,
    token_range,
    token_texts,
    token_texts_at,
    token_texts_of,
    turn_end,
)

BYTE_LEVEL = byte_level_tokenizer()
# Without U+FFFD, which cannot be told from bytes that are not a character.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd")


def encode(text: str, tokenizer: Any = BYTE_LEVEL) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def byte_fallback_tokenizer() -> Any:
    """SentencePiece style, as Gemma has: a mark for the space, bytes for rare characters."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        *"abcdnoxeswri{}\\0123456789",
    ]
    backend = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def token_bytes(token: str) -> int:
    """How many bytes a byte-level token stands for: one for each of its letters."""
    return len(token)


def expected_range(ids: list[int], text: str, start: int, stop: int) -> tuple[int, int]:
    """Tokens whose bytes overlap the bytes of text[start:stop], from byte counts alone."""
    first, last = len(text[:start].encode()), len(text[:stop].encode())
    overlapping: list[int] = []
    position = 0
    for index, token in enumerate(BYTE_LEVEL.convert_ids_to_tokens(ids)):
        if position < last and position + token_bytes(token) > first:
            overlapping.append(index)
        position += token_bytes(token)
    assert position == len(text.encode())
    return overlapping[0], overlapping[-1] + 1


@pytest.mark.parametrize(
    "text",
    [
        "The answer is \\boxed{42}.",
        "\\boxed{1} and then \\boxed{ 2x + 3 } done",
        "naïve 😀 first: \\boxed{😀🎉é}. 🎈",
        "\\boxed{a}",
        "日本語の答え \\boxed{三十六} です",
        "nested \\boxed{\\frac{1}{2}} end",
    ],
)
def test_answer_tokens_are_those_whose_bytes_overlap(text: str) -> None:
    ids = encode(text)
    span = find_answer(text)
    assert span is not None
    assert answer_tokens(BYTE_LEVEL, ids, text) == expected_range(ids, text, span.start, span.stop)


@pytest.mark.parametrize(
    ("text", "protocol", "inside"),
    [
        ('Sure 😀: {"final_answer": "42", "confidence": 0.9} 🎈', "verbalized", "42"),
        ('{"final_answer": 0.50, "confidence": 1}', "verbalized", "0.50"),
        (r'{"final_answer": "\\frac{1}{2}", "confidence": 1}', "verbalized", r"\\frac{1}{2}"),
        ("{'final_answer': '三十六😀', 'confidence': 1,}", "verbalized", "三十六😀"),
        (
            '[{"candidate": "1", "confidence": 0.2}, {"candidate": "23", "confidence": 0.6}]',
            "verbalized_top2",
            "23",
        ),
        (
            '[{"candidate": "7", "confidence": 0.2}, '
            '{"candidate": "None of the above", "confidence": 0.6}]',
            "verbalized_distribution",
            "7",
        ),
        ('so \\boxed{86} {"final_answer": "", "confidence": 0.9}', "verbalized", "86"),
    ],
)
def test_answer_tokens_in_json(text: str, protocol: str, inside: str) -> None:
    ids = encode(text)
    start = text.index(inside)
    expected = expected_range(ids, text, start, start + len(inside))
    assert answer_tokens(BYTE_LEVEL, ids, text, partial(find_answer, protocol=protocol)) == expected


def test_a_normalised_text_is_read_under_its_protocol() -> None:
    spelled = 'cafe: {"final_answer": "42", "confidence": 0.9} \\boxed{7}'
    ids, stated = encode(spelled), partial(find_answer, protocol="verbalized")
    found = answer_tokens(BYTE_LEVEL, ids, spelled.replace("cafe", "café"), stated)
    assert found == answer_tokens(BYTE_LEVEL, ids, spelled, stated)
    assert found != answer_tokens(BYTE_LEVEL, ids, spelled)


@settings(max_examples=150, deadline=None)
@given(
    st.text(CHARACTERS, max_size=25),
    st.text(CHARACTERS, min_size=1, max_size=12),
    st.text(CHARACTERS, max_size=12),
)
def test_any_characters_map_to_their_tokens(before: str, inside: str, after: str) -> None:
    text = before + inside + after
    ids = encode(text)
    start, stop = len(before), len(before) + len(inside)
    assert token_range(BYTE_LEVEL, ids, start, stop) == expected_range(ids, text, start, stop)


@pytest.mark.parametrize("after", [0, 10, 30, 70, 500, 1500])
def test_an_answer_anywhere_in_a_long_response(after: int) -> None:
    text = "green 😀 " * 100 + "\\boxed{4😀2}" + " red 🎉" * after
    ids = encode(text)
    start = text.index("4")
    assert answer_tokens(BYTE_LEVEL, ids, text) == expected_range(ids, text, start, start + 3)


def test_a_character_split_over_tokens_is_covered_by_all_of_them() -> None:
    ids = encode("x😀y")
    assert len(ids) == 6  # the emoji is four byte tokens
    assert token_range(BYTE_LEVEL, ids, 1, 2) == (1, 5)
    assert token_range(BYTE_LEVEL, ids, 2, 3) == (5, 6)


def test_byte_fallback_tokenizer() -> None:
    tokenizer = byte_fallback_tokenizer()
    text = "answer 😀 is \\boxed{1😀2} so"
    ids = encode(text, tokenizer)
    assert tokenizer.decode(ids) == text
    # One mark in front, then one token a character, but four for each emoji.
    start = 1 + text.index("1") + 3
    assert answer_tokens(tokenizer, ids, text) == (start, start + 6)
    longer = "words " * 300 + text
    ids = encode(longer, tokenizer)
    start += 1800
    assert answer_tokens(tokenizer, ids, longer) == (start, start + 6)


def test_special_tokens_and_trimmed_text_do_not_shift_the_answer() -> None:
    body = encode("  so \\boxed{42}. ")
    start_id, end_id = BYTE_LEVEL.bos_token_id, BYTE_LEVEL.eos_token_id
    plain = answer_tokens(BYTE_LEVEL, body, "  so \\boxed{42}. ")
    assert plain is not None
    shifted = (plain[0] + 1, plain[1] + 1)
    ids = [start_id, *body, end_id]
    for text in (
        "  so \\boxed{42}. ",
        "so \\boxed{42}.",
        "<|start|>  so \\boxed{42}. <|end|>",
    ):
        assert answer_tokens(BYTE_LEVEL, ids, text) == shifted


def test_the_graded_text_decides_which_answer_counts() -> None:
    # The text was cut at a stop string; the ids go on to another box.
    ids = encode("so \\boxed{42}. Next: \\boxed{7}")
    found = answer_tokens(BYTE_LEVEL, ids, "so \\boxed{42}. Next")
    assert found is not None
    assert "42" in BYTE_LEVEL.decode(ids[slice(*found)])


def test_a_normalised_text_is_found_in_the_decoded_ids() -> None:
    ids = encode("cafe: \\boxed{42}")
    found = answer_tokens(BYTE_LEVEL, ids, "café: \\boxed{42}")
    assert found == answer_tokens(BYTE_LEVEL, ids, "cafe: \\boxed{42}")


def test_no_answer_and_no_match() -> None:
    assert answer_tokens(BYTE_LEVEL, encode("no box"), "no box") is None
    assert answer_tokens(BYTE_LEVEL, [], "") is None
    with pytest.raises(DataError, match="decode to none"):
        answer_tokens(BYTE_LEVEL, encode("no box"), "a \\boxed{1}")


def test_bytes_that_never_become_a_character() -> None:
    broken = encode("😀")[:2]
    ids = [*encode("a"), *broken, *encode(" \\boxed{42}")]
    text = BYTE_LEVEL.decode(ids)
    found = answer_tokens(BYTE_LEVEL, ids, text)
    assert found is not None
    assert "42" in BYTE_LEVEL.decode(ids[slice(*found)])
    assert found[0] > 3


class CountingTokenizer:
    """Decodes like another tokenizer and counts the tokens it was asked to decode."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.decoded = 0

    def decode(self, token_ids: list[int], *args: Any, **kwargs: Any) -> str:
        self.decoded += len(token_ids)
        return self.tokenizer.decode(token_ids, *args, **kwargs)


@pytest.mark.parametrize("after", ["", " and so on" * 400])
def test_work_grows_with_the_length_times_its_logarithm(after: str) -> None:
    text = "Half of the apples are green 😀. " * 400 + "\\boxed{42}" + after
    ids = encode(text)
    counter: Any = CountingTokenizer(BYTE_LEVEL)
    assert answer_tokens(counter, ids, text) is not None
    assert counter.decoded <= 2 * len(ids) * math.log2(len(ids)) + 8 * len(ids)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [([5, 6, 1], 2), ([5, 6, 1, 2], 2), ([5, 1, 6], 3), ([1, 1], 0), ([], 0), ([5], 1)],
)
def test_turn_end(ids: list[int], expected: int) -> None:
    assert turn_end(ids, {1, 2}) == expected


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, byte_fallback_tokenizer()], ids=["bpe", "bytes"])
@settings(deadline=None, max_examples=60)
@given(
    text=st.text(CHARACTERS | st.sampled_from("日€🙂é a\n"), min_size=1, max_size=120),
    data=st.data(),
)
def test_the_text_of_one_token_is_that_among_all(tokenizer: Any, text: str, data: Any) -> None:
    ids = encode(text, tokenizer)
    if not ids:
        return
    place = data.draw(st.integers(0, len(ids) - 1))
    assert token_texts_at(tokenizer, ids, [place]) == [token_texts(tokenizer, ids)[place]]


def test_few_of_many_tokens_are_decoded_with_their_neighbours_alone() -> None:
    ids = encode("word " * 400)
    longest = 0

    class Counting:
        def decode(self, ids: list[int], *args: Any, **options: Any) -> Any:
            nonlocal longest
            longest = max(longest, len(ids))
            return BYTE_LEVEL.decode(ids, *args, **options)

    counting: Any = Counting()
    texts = token_texts(BYTE_LEVEL, ids)
    places = [0, 1, 300, len(ids) - 1]
    assert token_texts_at(counting, ids, places) == [texts[place] for place in places]
    assert longest < 20


@pytest.mark.parametrize("make", [byte_level_tokenizer, byte_fallback_tokenizer])
@pytest.mark.parametrize("text", ["one + 2\n3", "a \u20ac b \U0001f600", ""])
def test_texts_of_a_known_response_spell_it(make: Any, text: str) -> None:
    tokenizer = make()
    ids = encode(text, tokenizer)
    known: dict[int, str] = {}
    spelled = tokenizer.decode(ids)
    found = token_texts_of(tokenizer, ids, spelled, known)
    assert found == token_texts_of(tokenizer, ids, spelled, known), "known tokens change nothing"
    assert "".join(found) == "".join(token_texts(tokenizer, ids))
    assert len(found) == len(ids)
