"""Tokens of a text that comes in pieces: what is settled stays, whatever the pieces."""

from __future__ import annotations

import random
from typing import Any

import pytest

from divtok.models.load import load_tokenizer
from divtok.protocols.encode import response_ids
from divtok.protocols.settling import Settling

TEXTS = {
    "prose": "Tom finds  130 nuts.\n\nThe answer is \\boxed{551}. <|im_end|> x <|im_ end" * 3,
    "blanks": " lead\t\t and \n\n\n trail.\n\n- item\n  more  ",
    "digits": "12345 678 9 " * 30,
    "no blanks": "今天天气很好我们去公园玩吧。" * 40,
    "one letter": "a" * 900,
    "signs": "🙂👍🏽 e\u0301 ñ " * 30,
}


def sentencepiece_like() -> Any:
    """A tokenizer that puts a blank in front of a text, and joins blanks to what follows them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=300, max_token_length=6, special_tokens=["<unk>"], show_progress=False
    )
    made.train_from_iterator(TEXTS.values(), trainer)
    # Trained word by word, and then used for whole texts, as such tokenizers are.
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


@pytest.fixture(scope="module", params=["bytes", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return load_tokenizer("divtok/tiny-1.6m") if request.param == "bytes" else sentencepiece_like()


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_settled_stays(tokenizer: Any, name: str) -> None:
    text = TEXTS[name]
    whole = response_ids(tokenizer, text)
    for seed in range(4):
        rng, at, settling = random.Random(seed), 0, Settling(tokenizer)
        while at < len(text):
            size = rng.choice([1, 1, 2, 5, 17])
            before = len(settling.ids)
            more = settling.add(text[at : at + size])
            assert len(settling.ids) == before + more
            assert tuple(settling.ids) == whole[: len(settling.ids)]
            at += size
        assert (settling.text, settling.whole()) == (text, whole)
        assert len(settling.ids) < len(whole)


def test_what_is_held_back_is_little() -> None:
    tokenizer = load_tokenizer("divtok/tiny-1.6m")
    settling = Settling(tokenizer)
    settled: list[str] = []
    for piece in ["Tom", " ", "finds 1", "30", " nuts", ".", "\n", "How", " many"]:
        settling.add(piece)
        settled.append(tokenizer.decode(settling.ids))
    one, three = "Tom finds", "Tom finds 130"
    assert settled == ["", "Tom", one, one, *[three] * 4, "Tom finds 130 nuts.\nHow"]


def test_a_text_without_blanks_is_settled_up_to_its_last_part() -> None:
    settling = Settling(load_tokenizer("divtok/tiny-1.6m"))
    for letter in TEXTS["no blanks"]:
        settling.add(letter)
    told = settling.text[: settling._cuts[-1]]
    assert 128 <= len(settling.text) - len(told) <= 256
