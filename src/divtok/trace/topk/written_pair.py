"""A generator that writes behind a server, and an auxiliary here that reads along.

Of p its most likely tokens are known at each place, of q everything: their divergence is known
within bounds, and exactly where p lists its whole vocabulary. Knows no threshold, and nothing of
how p is asked and q is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.divergences.arithmetic import FloatArray64
from divtok.endpoints.client import Unusable
from divtok.models.load import Tokenizer
from divtok.trace.pair import Column, check_reads_all, check_vocabularies
from divtok.trace.reader import Reader
from divtok.trace.topk.alignment import rounding_of_places
from divtok.trace.topk.answers import Place, TokenNames, known_of
from divtok.trace.topk.bounds import jsd_bounds, outward
from divtok.trace.topk.exact import exact_columns, is_whole
from divtok.trace.topk.known import FLOAT32, Flags, Ids, Known, Rounding, stated_rounding, unsound
from divtok.trace.topk.server_model import read_local

if TYPE_CHECKING:
    from torch import Tensor

# Of q's likely tokens those that p does not list are told apart; all others count as one mass.
_LIKELY = 128


@dataclass(frozen=True, slots=True, eq=False)
class Writer:
    """The model p that a server writes with, as far as it is known here: by its tokenizer.

    `width` is the length of its distributions, None where no config tells; `sure_width` is that,
    or what the tokenizer alone shows of it. `stated` is how exact its log-probs are said to be.
    """

    name: str
    tokenizer: Tokenizer
    width: int | None
    end_ids: frozenset[int]
    stated: Rounding | None = None

    @property
    def sure_width(self) -> int:
        return self.width or self.tokenizer_width

    @property
    def tokenizer_width(self) -> int:
        return max(self.tokenizer.get_vocab().values()) + 1

    @property
    def names(self) -> TokenNames:
        return TokenNames(self.tokenizer, self.width)


@dataclass(frozen=True, slots=True, eq=False)
class WrittenPair:
    """p behind a server, q here. Their token->id maps must agree."""

    p: Writer
    q: Reader

    def __post_init__(self) -> None:
        check_vocabularies(self.p.name, self.p.tokenizer, self.q.name, self.q.tokenizer)
        check_reads_all(self.p, self.q, next_step="Use another auxiliary, of the same series.")

    @property
    def vocab_size(self) -> int:
        """The width that ids must keep within."""
        return min(self.p.sure_width, self.q.head.width)

    @property
    def shared_width(self) -> int:
        """What q's distributions are cut to: the vocabulary that both have, as far as is known."""
        return self.q.head.width if self.p.width is None else self.vocab_size


def load_writer(name: str, *, tokenizer: Any = None, precision: str | float = "auto") -> Writer:
    """p by its tokenizer, given as such or as a ref; without it `name` is the ref."""
    found, width, end_ids = read_local(name if tokenizer is None else tokenizer, None)
    return Writer(name, found, width, end_ids, stated_rounding(precision))


class Numbers:
    """The numbers of one response's tokens, some tokens at a time.

    How exact p's log-probs are, and whether they are whole distributions, is told by the first
    tokens and holds for all: few numbers look coarser than they are, never finer.
    """

    def __init__(self, pair: WrittenPair) -> None:
        self._pair, self._rounding = pair, pair.p.stated
        self._exact: bool | None = None  # not known before the first tokens

    def of(self, places: Sequence[Place], logits: Tensor) -> list[Mapping[str, float]]:
        """Of p's places and q's logits [N, V] at them; `Unusable` where p contradicts itself."""
        if self._rounding is None:
            self._rounding = rounding_of_places(places)
        p, own_p = known_of(places, self._rounding)
        if unsound(p, self._rounding).any():
            raise Unusable("its log-probs are no distribution (NaN, +inf or more than 1 in all)")
        width, q = self._pair.p.width, _Read.of(logits, self._pair.shared_width)
        whole = self._rounding == FLOAT32 and width is not None and is_whole(p, width)
        if self._exact and not whole:
            raise Unusable("it lists its whole vocabulary at some tokens only")
        if self._exact is None:
            self._exact = whole
        if self._exact and width is not None:
            columns = _exactly(p, width, q)
        else:
            columns = self._within(p, own_p, q, self._rounding)
        columns |= {"dropped_q": q.dropped, "finite_p": np.ones(len(p)), "finite_q": q.finite}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def _within(
        self, p: Known, own_p: FloatArray64, q: _Read, rounding: Rounding
    ) -> dict[str, Column]:
        pair = self._pair
        low, high = outward(
            *jsd_bounds(
                p,
                q.known_beside(p.ids),
                p_rounding=rounding.summed_over(pair.p.sure_width),
                q_rounding=FLOAT32.summed_over(pair.q.head.width),
                p_width=pair.p.width,
                q_width=pair.shared_width,
                sure_width=pair.vocab_size,
            )
        )
        unknown = ("entropy_p", "entropy_q", "kl_pq", "kl_qp")
        cut = pair.p.width is None or pair.p.width > pair.shared_width
        return {
            "logprob_p": np.minimum(own_p, 0.0),
            "logprob_q": q.of_tokens(p.ids[:, :1])[:, 0],
            "jsd_bits": (low.astype(np.float64) + high) / 2,
            "jsd_low_bits": low,
            "jsd_high_bits": high,
            **{name: np.full(len(p), np.nan) for name in unknown},
            "dropped_p": np.full(len(p), np.nan if cut else 0.0),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """What q gives at N places: log-probs over the shared width, and the mass beyond it, [N]."""

    logprobs: Tensor  # [N, V] in float64
    dropped: FloatArray64
    finite: Flags

    @classmethod
    def of(cls, logits: Tensor, width: int) -> _Read:
        """Where the logits are no distribution there is an even one, which nothing is taken of."""
        import torch

        logits = logits.double()
        kept = logits[:, :width].logsumexp(-1, keepdim=True)
        whole = logits.logsumexp(-1, keepdim=True)
        finite = kept.isfinite() & whole.isfinite()
        logprobs = torch.where(finite, logits[:, :width] - kept, -float(np.log(width)))
        dropped = torch.where(finite, 1 - (kept - whole).exp(), 0.0).clamp(min=0.0)
        return cls(logprobs, dropped[:, 0].cpu().numpy(), finite[:, 0].cpu().numpy())

    def whole(self) -> Known:
        """Every token."""
        logprobs = self.logprobs.cpu().numpy()
        ids = np.broadcast_to(np.arange(logprobs.shape[1]), logprobs.shape)
        return Known(ids, logprobs, np.zeros(len(logprobs)))

    def known_beside(self, ids: Ids) -> Known:
        """Of the tokens that p lists [N, M], -1 for none, and of the likeliest others.

        What is left has a mass that is known, and at most `cap` each, which is all that counts.
        """
        width = self.logprobs.shape[1]
        likely = self.logprobs.topk(min(_LIKELY, width))
        others, values = likely.indices.cpu().numpy(), likely.values.cpu().numpy()
        there = np.where(ids < width, ids, -1)
        again = (others[:, :, None] == there[:, None, :]).any(axis=2)
        return Known(
            np.concatenate([there, np.where(again, -1, others)], axis=1),
            np.concatenate([self.of_tokens(there), values], axis=1),
            np.exp(values[:, -1]),
        )

    def of_tokens(self, ids: Ids) -> FloatArray64:
        """[N, M] of these tokens; anything for those that are -1."""
        import torch

        at = torch.from_numpy(np.maximum(ids, 0)).to(self.logprobs.device)
        return self.logprobs.gather(1, at).cpu().numpy()


def _exactly(p: Known, width: int, q: _Read) -> dict[str, Column]:
    found = exact_columns(p, width, q.whole(), q.logprobs.shape[1], p.ids[:, 0])
    return {**found["columns"], "dropped_p": np.full(len(p), found["dropped_mass_p"])}
