"""Rounds of drafting and checking, in which rows get several tokens at a time, each its own number.

The generator has read all of a row but its last token. The auxiliary lacks one more where a whole
draft was accepted: the last drafted token, behind which it predicts the token that came on top. It
reads that token at the start of the next round, so a row that ends with such a token stays for it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from divtok.errors import ModelError
from divtok.generate.draw import draw
from divtok.generate.speculative.acceptance import settle
from divtok.generate.speculative.blocks import Model, moves
from divtok.generate.speculative.chances import Chances
from divtok.generate.speculative.recorder import Recorder
from divtok.generate.steps import Row, closed_up

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(slots=True)
class Spoken:
    """What a row has got behind its prompt, an end token among it, and in how many rounds."""

    token_ids: list[int] = field(default_factory=list[int])
    rounds: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """K tokens of each row [B, K], and what they were drawn from.

    `states` [B, K, D] are the auxiliary's, at least one of a row, and `given` [B, K + 1, V] says
    which tokens a row has before each.
    """

    tokens: Tensor
    q: Tensor  # [B, K, V]
    states: Tensor
    given: Tensor | None
    numbers: Tensor  # [B, K + 1], to check it with


@dataclass(frozen=True, slots=True, eq=False)
class _Owed:
    """Tokens that came on top of a whole draft: the auxiliary has not read up to them yet."""

    places: Tensor
    rows: list[int]
    tokens: list[int]
    states: Tensor  # the generator's, [N, D]


def write_in_rounds(
    generator: Model,
    auxiliary: Model,
    rows: Sequence[Row],
    chances: Chances,
    *,
    end_ids: Set[int],
    recorder: Recorder | None = None,
) -> list[Spoken]:
    """What is written behind each row's prompt: to its limit, or to its end token with it."""
    batch = _Batch(generator, auxiliary, rows, chances, end_ids, recorder)
    while batch.goes_on:
        states = batch.catch_up()
        if states is not None:
            batch.check(batch.draft(states))
    return batch.spoken


class _Batch:
    """Rows on their way through rounds. A row is told by its place, which it may change."""

    def __init__(
        self,
        generator: Model,
        auxiliary: Model,
        rows: Sequence[Row],
        chances: Chances,
        end_ids: Set[int],
        recorder: Recorder | None,
    ) -> None:
        import torch

        self._generator, self._auxiliary, self._chances = generator, auxiliary, chances
        self._end_ids, self._recorder = end_ids, recorder
        self._device = generator.device
        self.spoken = [Spoken() for _ in rows]
        self._at: list[Row | None] = list(rows)  # by place; None where a row has ended
        prompts = [row.prompt for row in rows]
        for model in (generator, auxiliary):
            model.begin(prompts)
        self._last = torch.tensor([prompt[-1] for prompt in prompts], device=self._device)
        self._before = self._last  # the token before it, where the auxiliary lacks that, too
        self._owed: _Owed | None = None
        none, one = [0] * len(rows), [1] * len(rows)
        # Where it does, what the auxiliary reads then, and what it moves on by at each step.
        self._behind, self._catching_up, self._step = moves(self._device, none, one, one)

    @property
    def goes_on(self) -> bool:
        return self._owed is not None or any(row is not None for row in self._at)

    def catch_up(self) -> Tensor | None:
        """The auxiliary's states [B, D] behind all rows; those that have ended leave now.

        None where none is left.
        """
        import torch

        block, behind = self._last[:, None], self._behind.there
        if any(self._behind.by):
            # A row that lacks one token reads another behind it, which does not count.
            first = torch.where(behind > 0, self._before, self._last)
            block = torch.stack([first, self._last], dim=1)
        states = self._auxiliary.read(block)
        if self._owed is not None and self._recorder is not None:
            owed = self._owed
            self._recorder.add(owed.rows, owed.tokens, owed.states, states[owed.places, 0])
        self._owed = None
        self._auxiliary.advance(self._catching_up)
        states = states[torch.arange(len(behind), device=self._device), behind]
        live = [place for place, row in enumerate(self._at) if row is not None]
        if not live:
            return None
        if len(live) < len(self._at) and self._generator.should_close_up(len(live)):
            kept = closed_up(live)
            self._keep(kept)
            states = states[kept]
        return states

    def draft(self, states: Tensor) -> _Draft:
        """The next tokens of all rows by the auxiliary, from its states [B, D] behind them.

        Without drafts these are the states that predict the one token of the round.
        """
        import torch

        chances, (count, wide) = self._chances, states.shape
        most, width, given = chances.drafts, chances.width, chances.given
        numbers = chances.numbers()
        tokens = torch.empty(count, most, dtype=torch.long, device=self._device)
        q = torch.empty(count, most, width, device=self._device)
        kept = states.new_empty(count, max(1, most), wide)
        kept[:, 0] = states
        before = None if given is None else given.new_empty(count, most + 1, width)
        for place in range(most):
            logits = self._auxiliary.head.logits(states).to(self._device)
            q[:, place] = chances.distributions(logits, given)
            tokens[:, place] = drawn = draw(q[:, place], numbers[:, place])
            if given is not None and before is not None:
                before[:, place] = given
                given = given.scatter(1, drawn[:, None], 1.0)
            if place + 1 < most:
                kept[:, place + 1] = states = self._auxiliary.read(drawn[:, None])[:, 0]
                self._auxiliary.advance(self._step)
        if given is not None and before is not None:
            before[:, most] = given
        return _Draft(tokens, q, kept, before, numbers[:, most:])

    def check(self, draft: _Draft) -> None:
        """Have the generator check a draft: rows get what stays of it, and one token more."""
        import torch

        count, most = draft.tokens.shape
        block = torch.cat([self._last[:, None], draft.tokens], dim=1)
        states = self._generator.read(block)
        logits = self._generator.head.logits(states.flatten(0, 1)).to(self._device)
        given = None if draft.given is None else draft.given.flatten(0, 1)
        p = self._chances.distributions(logits, given).unflatten(0, (count, most + 1))
        tokens, counts = settle(draft.tokens, draft.q, p, draft.numbers)
        last = tokens.gather(1, counts[:, None] - 1)
        # An ended row that is carried along may be no distribution any more, and has token -1.
        self._last, self._before = last[:, 0].clamp(min=0), block[:, -1]
        if draft.given is not None:
            rows = torch.arange(count, device=self._device)
            given = draft.given[rows, counts - 1]
            self._chances.given = given.scatter(1, last.clamp(min=0), 1.0)
        # The one moment of a round at which Python waits for the device.
        numbers = torch.cat([counts[:, None], tokens], dim=1).tolist()
        written = [row[1 : 1 + row[0]] for row in numbers]
        went_on = [row is not None for row in self._at]
        self._hand_out(written, states, draft.states)
        self._move_on([len(tokens) for tokens in written], draft.states.shape[1], went_on)

    def _hand_out(self, written: list[list[int]], states_p: Tensor, states_q: Tensor) -> None:
        """Give the rows their tokens, up to their ends.

        The generator's states [B, K + 1, D] predict all of them, the auxiliary's those it has read.
        """
        import torch

        read = states_q.shape[1]
        now: list[tuple[int, int, int, int]] = []  # place, position, row, token
        for place, row in enumerate(self._at):
            if row is None:
                continue
            spoken = self.spoken[row.number]
            spoken.rounds += 1
            for position, token in enumerate(written[place]):
                _check(token)
                spoken.token_ids.append(token)
                now.append((place, position, row.number, token))
                if token in self._end_ids or len(spoken.token_ids) == row.limit:
                    self._at[place] = None
                    break
        if self._recorder is None:
            return
        drafted = [each for each in now if each[1] < read]
        on_top = [each for each in now if each[1] == read]
        if drafted:
            places, positions, rows, tokens = map(list, zip(*drafted, strict=True))
            self._recorder.add(
                rows, tokens, states_p[places, positions], states_q[places, positions]
            )
        if on_top:
            places, _, rows, tokens = map(list, zip(*on_top, strict=True))
            at = torch.tensor(places, device=self._device)
            self._owed = _Owed(at, rows, tokens, states_p[at, read])

    def _move_on(self, counts: list[int], read: int, went_on: list[bool]) -> None:
        """Let both models know what counts of this round, in the rows that were not ended before.

        Of the `read` tokens that the auxiliary has read those that did not stay are taken back.
        """
        goes_on = [row is not None for row in self._at]
        behind = [int(count > read) for count in counts]
        forth, back, self._behind, self._catching_up, self._step = moves(
            self._device,
            [count * was for count, was in zip(counts, went_on, strict=True)],
            [(min(n, read) - read) * was for n, was in zip(counts, went_on, strict=True)],
            behind,
            [(1 + more) * on for more, on in zip(behind, goes_on, strict=True)],
            [int(on) for on in goes_on],
        )
        self._generator.advance(forth)
        self._auxiliary.advance(back)

    def _keep(self, places: list[int]) -> None:
        for each in (self._generator, self._auxiliary, self._chances):
            each.keep(places)
        self._at = [self._at[place] for place in places]
        self._last, self._before = self._last[places], self._before[places]
        (self._step,) = moves(self._device, [1] * len(places))  # all of them go on


def _check(token: int) -> None:
    if token < 0:
        raise ModelError(
            "The logits of the generator or of its auxiliary are not numbers (NaN or infinite).",
            next_step="Use generate.dtype=float32 or bfloat16; float16 may overflow.",
        )
