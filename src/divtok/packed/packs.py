"""Which responses are read together, and how: packs of tokens without padding.

A pack is one long row of tokens. Every response is a lane of it; the lanes of one prompt share the
prompt's rows, which so go through the trunk once. Pure index arithmetic on numpy arrays:
no model, no torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.errors import UsageError

Indices = npt.NDArray[np.int64]
Ids = Sequence[int] | npt.NDArray[np.integer[Any]]

# Below so many tokens reading a prompt again is cheaper than gathering its rows for attention.
SHARE_FROM = 32
# Lanes go through attention side by side, padded to the longest. One may be shorter than that by
# this ratio, or by this many tokens.
_GROUP_RATIO = 1.25
_GROUP_TOKENS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """One causal sequence: the rows of a pack it reads, in order. `rows[owned:]` are its own.

    The rows before are a shared prompt, owned by another lane and only looked back at.
    """

    rows: Indices
    owned: int


@dataclass(frozen=True, slots=True, eq=False)
class AttentionGroup:
    """Lanes of like length that attend side by side, padded at their ends.

    In causal attention no real token sees the padding behind it, so no mask is needed.
    """

    index: Indices  # [B, L] rows of the pack; padding repeats a lane's last row
    slots: Indices  # [M] flat positions in [B * L] whose output is kept
    rows: Indices  # [M] the rows of the pack they belong to

    @property
    def span(self) -> tuple[int, int] | None:
        """(start, stop) where the group is just these rows of the pack in order, else None."""
        flat = self.index.reshape(-1)
        start, stop = int(flat[0]), int(flat[0]) + flat.size
        whole = len(self.slots) == flat.size and np.array_equal(flat, np.arange(start, stop))
        return (start, stop) if whole else None


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """Tokens to read in one pass, and what is asked for.

    `ids` and `positions` are [N]. `predicts` [sum T] are the rows whose hidden states predict the
    responses' tokens, response after response.
    """

    ids: Indices
    positions: Indices
    lanes: tuple[Lane, ...]
    predicts: Indices


def build_pack(prompts: Sequence[Ids], responses: Sequence[Ids], *, whole: bool = False) -> Pack:
    """Prompts and responses, one of each a trajectory and none empty -> their pack.

    A response's last token predicts nothing that is asked for, so it is read only for a `whole`
    pack, where hidden states of all tokens are.
    """
    parts: list[Indices] = []
    positions: list[Indices] = []
    first_rows: dict[bytes, int] = {}
    lanes: list[Lane] = []
    predicts: list[Indices] = []
    count = 0
    for prompt_ids, response_ids in zip(prompts, responses, strict=True):
        prompt = np.asarray(prompt_ids, dtype=np.int64)
        read = np.asarray(response_ids if whole else response_ids[:-1], dtype=np.int64)
        shared = first_rows.get(prompt.tobytes())
        if shared is None:
            if len(prompt) >= SHARE_FROM:
                first_rows[prompt.tobytes()] = count
            rows = np.arange(count, count + len(prompt) + len(read))
            parts += [prompt, read]
            positions.append(np.arange(len(rows)))
            lanes.append(Lane(rows, 0))
        else:
            own = np.arange(count, count + len(read))
            rows = np.concatenate([np.arange(shared, shared + len(prompt)), own])
            parts.append(read)
            positions.append(np.arange(len(prompt), len(rows)))
            if len(read):  # a single token is predicted by the prompt alone
                lanes.append(Lane(rows, len(prompt)))
        predicts.append(rows[len(prompt) - 1 :][: len(response_ids)])
        count += len(parts[-1]) + (len(prompt) if shared is None else 0)
    return Pack(
        ids=np.concatenate(parts),
        positions=np.concatenate(positions),
        lanes=tuple(lanes),
        predicts=np.concatenate(predicts),
    )


def attention_groups(pack: Pack) -> list[AttentionGroup]:
    """The lanes of a pack as they attend side by side, each row's output kept once."""
    # Each lane brings its own copy of a shared prompt to attention, so groups are kept small.
    batches = like_lengths(pack.lanes, most_tokens=2 * len(pack.ids))
    return [_attention_group(batch) for batch in batches]


def like_lengths(lanes: Sequence[Lane], *, most_tokens: int) -> list[list[Lane]]:
    """Lanes of like length together, longest first, padded to at most so many tokens a batch.

    One that is longer than that is alone.
    """
    batches: list[list[Lane]] = []
    # A stable sort keeps equal lanes in the order of their rows, so an even pack needs no copy.
    for lane in sorted(lanes, key=lambda lane: -len(lane.rows)):
        length = len(lane.rows)
        if batches:
            longest = len(batches[-1][0].rows)
            alike = longest <= _GROUP_RATIO * length or longest - length <= _GROUP_TOKENS
            if alike and (len(batches[-1]) + 1) * longest <= most_tokens:
                batches[-1].append(lane)
                continue
        batches.append([lane])
    return batches


def padded_rows(batch: Sequence[Lane]) -> Indices:
    """[B, L] rows of the pack; padding repeats a lane's last row."""
    width = max(len(lane.rows) for lane in batch)
    return np.stack([np.pad(s.rows, (0, width - len(s.rows)), mode="edge") for s in batch])


def _attention_group(batch: Sequence[Lane]) -> AttentionGroup:
    index = padded_rows(batch)
    width = index.shape[1]
    slots = [np.arange(i * width + s.owned, i * width + len(s.rows)) for i, s in enumerate(batch)]
    return AttentionGroup(
        index=index,
        slots=np.concatenate(slots),
        rows=np.concatenate([s.rows[s.owned :] for s in batch]),
    )


def plan_packs(
    prompts: Sequence[Hashable],
    prompt_lengths: Sequence[int],
    response_lengths: Sequence[int],
    *,
    max_tokens: int,
    max_rows: int,
) -> list[list[int]]:
    """Indices in packs of at most `max_rows` responses and `max_tokens` tokens.

    Counted as they are read: a prompt once a pack, and of a response all but its last token.
    Responses to one prompt stay together, the longest first, so that like lengths meet. One that is
    over the budget alone gets a pack of its own.
    """
    for name, value in (("max_tokens", max_tokens), ("max_rows", max_rows)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}.")
    order: dict[Hashable, int] = {}
    for prompt in prompts:
        order.setdefault(prompt, len(order))
    packs: list[list[int]] = []
    tokens, inside = 0, set[Any]()
    for index in sorted(
        range(len(prompts)), key=lambda i: (order[prompts[i]], -response_lengths[i], i)
    ):
        read = max(0, response_lengths[index] - 1)
        shared = prompts[index] in inside and prompt_lengths[index] >= SHARE_FROM
        fresh = prompt_lengths[index] + read
        more = read if shared else fresh
        if packs and len(packs[-1]) < max_rows and tokens + more <= max_tokens:
            packs[-1].append(index)
            tokens += more
        else:
            packs.append([index])
            tokens, inside = fresh, set()
        inside.add(prompts[index])
    return packs
