"""Trajectories in the tokens of a model that reads them: its own ids, or the text encoded anew."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from divtok.config.run import RunConfig
from divtok.models.load import Tokenizer, load_tokenizer, tokenizer_at_hand
from divtok.protocols.encode import prompt_ids, repr_prompt_ids, response_ids
from divtok.records import Trajectory
from divtok.trace.pair import different_tokens


@dataclass(frozen=True, slots=True)
class AsRead:
    """Trajectories as a reader reads them, in the order they came in.

    `beyond` are the keys of those that alone were tokenised anew, because they hold a token that
    the reader has not, while it has all others of their generator.
    """

    rows: list[Trajectory]
    beyond: frozenset[str] = frozenset()


def as_read_by(
    reader: str,
    rows: Sequence[Trajectory],
    questions: Mapping[tuple[str, str], str],
    config: RunConfig,
    *,
    as_text: Collection[str] = (),
) -> AsRead:
    """Trajectories of another generator in the reader's own tokens and prompt template.

    Ids mean the same as far as both tokenizers give them to the same tokens, prompt ids too; where
    the tokenizers differ there, the text is what they share. The tokenizer of a generator without
    weights here is not known, but ids that spell the question and the response in the reader's own
    tokens are the reader's. Those in `as_text` (keys) are tokenised anew whatever their ids are,
    and with `trace.prompt=repr` all are, for no generator has read such a prompt.
    """
    if config.trace.prompt == "repr":
        return AsRead(_behind_a_repr(reader_tokenizer(config, reader), rows, questions))
    tokenizer = reader_tokenizer(config, reader)
    known: dict[str, float] = {}
    read: list[Trajectory] = []
    beyond: set[str] = set()
    for row in rows:
        question = questions[row.benchmark, row.problem_id]
        if not config.weights_here:
            kept = spelled_by(tokenizer, row, question)
        else:
            if row.generator not in known:
                own = load_tokenizer(row.generator, revision=config.revisions.get(row.generator))
                known[row.generator] = known_ids(own, tokenizer)
            width = known[row.generator]
            kept = max((-1, *row.prompt_ids, *row.token_ids)) < width
            if width and not kept:
                beyond.add(row.key)
        if kept and row.key not in as_text:
            read.append(row)
            continue
        read.append(
            replace(
                row,
                prompt_ids=prompt_ids(tokenizer, question, protocol=row.protocol),
                token_ids=response_ids(tokenizer, row.text),
                retokenized=True,
            )
        )
    return AsRead(read, frozenset(beyond))


def known_ids(generator: Tokenizer, reader: Tokenizer) -> float:
    """Below this, ids of the generator are the reader's own.

    0 where the two give one id to different tokens, infinite where they have the same tokens: the
    output layers may be wider than that.
    """
    theirs, own = generator.get_vocab(), reader.get_vocab()
    if theirs == own:
        return math.inf
    if different_tokens(generator, reader) is not None:
        return 0
    return 1 + min(max(theirs.values()), max(own.values()))


def _behind_a_repr(
    tokenizer: Tokenizer,
    rows: Sequence[Trajectory],
    questions: Mapping[tuple[str, str], str],
) -> list[Trajectory]:
    """Responses as text behind a repr of the messages that asked for them."""
    return [
        replace(
            row,
            prompt_ids=repr_prompt_ids(
                tokenizer, questions[row.benchmark, row.problem_id], protocol=row.protocol
            ),
            token_ids=response_ids(tokenizer, row.text),
            retokenized=True,
        )
        for row in rows
    ]


def spelled_by(tokenizer: Tokenizer, row: Trajectory, question: str) -> bool:
    """Whether a row's ids are this tokenizer's: they spell its text, and its question before it."""
    if not row.prompt_ids or not row.token_ids:
        return False
    if max(*row.prompt_ids, *row.token_ids) >= len(tokenizer):
        return False
    response = tokenizer.decode(list(row.token_ids), True, clean_up_tokenization_spaces=False)
    asked = tokenizer.decode(list(row.prompt_ids), False, clean_up_tokenization_spaces=False)
    return response == row.text and question.strip() in asked


def reader_tokenizer(config: RunConfig, reader: str, *, at_hand: bool = False) -> Any:
    """The tokenizer of a model that reads; on a server, the one the config names for it.

    With `at_hand` only what is on this machine will do.
    """
    ref = config.tokenizers.get(reader, reader)
    load = tokenizer_at_hand if at_hand else load_tokenizer
    return load(ref, revision=config.revisions.get(ref))
