"""A question whose answer a pair scores while it is written, and who accepts it.

What `stream`, `ask_until` and `follow` have in common, and all that they refuse before a token is
written. Where p of the pair answers itself, a question says how that is sampled, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from divtok.api.scoring import FitLike, PolicyLike, Scoring, not_text
from divtok.errors import UsageError
from divtok.generate.decoding import Ask
from divtok.generate.live import Live, WrittenTogether
from divtok.protocols.encode import prompt_ids
from divtok.records import CountedTokens, Problem, Sampling, Scalar, trajectory_key
from divtok.trace.pair import Pair
from divtok.trace.topk.written_pair import WrittenPair

# Sums over a beginning and over the whole are rounded differently.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Bar:
    """The threshold that a response has to reach, by the estimator at this place."""

    threshold: float
    estimator: str
    place: int
    never_rises: bool

    def out_of_reach(self, value: float | None) -> bool:
        """Whether no further token can bring a running confidence back to the threshold.

        Where it is known within bounds, the upper one decides.
        """
        return self.never_rises and value is not None and value < self.threshold - _ROUNDING


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """One question to whose response a pair listens while it grows; `bar` is what it has to reach,
    None where nothing decides. Made by `of`, which refuses what cannot be known of a beginning.
    """

    text: str
    pair: Pair | WrittenPair
    scoring: Scoring
    prompt: tuple[int, ...]
    bar: Bar | None

    @classmethod
    def of(
        cls,
        question: str,
        pair: Pair | WrittenPair,
        *,
        generator: str | None,
        estimators: str | Sequence[str] | None,
        theta: float | None,
        tokens: CountedTokens,
        fitted: FitLike | None,
        prior: float | None,
        policy: PolicyLike | None,
        parameters: Mapping[str, Scalar],
        above: float | None = None,
    ) -> Watch:
        why = not_text("question", question)
        if why is not None:
            raise UsageError(f"{why[0].upper()}{why[1:]}.")
        if not isinstance(pair, Pair | WrittenPair):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                "Only a pair of models with weights here reads a response while it is written.",
                next_step="Make one with load_pair.",
            )
        scoring = Scoring.of(
            pair,
            theta=theta,
            generator=generator,
            estimators=estimators,
            parameters=parameters,
            tokens=tokens,
            fitted=fitted,
            prior=prior,
            policy=policy,
        )
        for spec, _ in scoring.chosen:
            if spec.evidence:
                raise UsageError(
                    f"'{spec.name}' is not known while a response is written: it needs "
                    f"{', '.join(spec.evidence)}.",
                    next_step="Score the whole response with it: divtok.confidence.",
                )
        prompt = prompt_ids(pair.p.tokenizer, question)
        return cls(question, pair, scoring, prompt, _bar(scoring, above))

    @property
    def both_here(self) -> Pair:
        """The pair, for what both models read here."""
        if not isinstance(self.pair, Pair):
            raise UsageError(
                "A generator behind a server tells of its own tokens; it reads no text.",
                next_step="Follow its tokens, or make a pair with load_pair.",
            )
        return self.pair

    def check_stop(self, stop: bool) -> None:
        """Refuse to stop where nothing says when."""
        if stop and self.bar is None:
            raise UsageError(
                "Nothing says from which confidence on a response would be stopped.",
                next_step="Give a policy, or leave out stop.",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One question to a pair whose p answers it. `limit` is the most tokens of a response.

    Made by `of`.
    """

    watch: Watch
    pair: Pair
    sampling: Sampling
    limit: int

    @classmethod
    def of(
        cls,
        question: str,
        pair: Pair,
        *,
        estimators: str | Sequence[str] | None,
        theta: float | None,
        sampling: Sampling,
        max_tokens: int | None,
        tokens: CountedTokens,
        fitted: FitLike | None,
        prior: float | None,
        policy: PolicyLike | None,
        parameters: Mapping[str, Scalar],
        above: float | None = None,
    ) -> Question:
        watch = Watch.of(
            question,
            pair,
            generator=None if not isinstance(pair, Pair) else pair.p.name,  # pyright: ignore[reportUnnecessaryIsInstance]
            estimators=estimators,
            theta=theta,
            tokens=tokens,
            fitted=fitted,
            prior=prior,
            policy=policy,
            parameters=parameters,
            above=above,
        )
        return cls(watch, pair, sampling, _limit(pair, len(watch.prompt), sampling, max_tokens))

    @property
    def scoring(self) -> Scoring:
        return self.watch.scoring

    @property
    def bar(self) -> Bar | None:
        return self.watch.bar

    def key(self, sample: int) -> str:
        """Tells a response by its question, model, sampling and number; its draws go by it."""
        return trajectory_key(
            Problem("", "", self.watch.text, None),
            generator=self.pair.p.name,
            protocol="cot",
            sampling=self.sampling,
            sample=sample,
        )

    def written(self, samples: Sequence[int]) -> Live:
        """These samples, written at the same time."""
        asks = [Ask(self.key(sample), self.watch.prompt, self.limit) for sample in samples]
        others = self.scoring.asked.divergences
        return WrittenTogether(self.pair, asks, self.sampling, others=others)


def sampling_of(
    sampling: Sampling | None,
    *,
    temperature: float | None,
    top_p: float | None,
    seed: int | None,
) -> Sampling:
    """A sampling with what is given apart."""
    apart = {"temperature": temperature, "top_p": top_p, "seed": seed}
    given: dict[str, float] = {name: x for name, x in apart.items() if x is not None}
    made = replace(sampling or Sampling(), **given)
    if not (made.temperature >= 0 and 0 < made.top_p <= 1):
        raise UsageError(
            f"A response cannot be sampled at temperature {made.temperature:g} with top_p "
            f"{made.top_p:g}.",
            next_step="Give a temperature of 0 or more, and a top_p above 0 and up to 1.",
        )
    return made


def _limit(pair: Pair, prompt: int, sampling: Sampling, max_tokens: int | None) -> int:
    if max_tokens is not None and max_tokens < 1:
        raise UsageError(f"max_tokens must be at least 1, not {max_tokens}.")
    most = min(sampling.max_length, pair.context_length or sampling.max_length)
    if prompt >= most:
        raise UsageError(
            f"The question has {prompt} tokens with its prompt, which leaves no room for a "
            f"response within {most}.",
            next_step="Shorten it, or use models with a longer context.",
        )
    return min(most - prompt, max_tokens or most)


def _bar(scoring: Scoring, above: float | None) -> Bar | None:
    """What decides: the policy, or a number for the first estimator."""
    names = [spec.name for spec, _ in scoring.chosen]
    if scoring.policy is not None:
        if above is not None:
            raise UsageError(
                "The policy says what is accepted; a number beside it says it twice.",
                next_step="Leave out one of the two.",
            )
        place, threshold = names.index(scoring.policy.scored.estimator), scoring.policy.threshold
    elif above is not None:
        place, threshold = 0, above
    else:
        return None
    spec, _ = scoring.chosen[place]
    return Bar(threshold, spec.name, place, spec.never_rises)
