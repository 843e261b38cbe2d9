"""What a token of a run's responses costs, from the sizes of the models that write and read it."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.config.run import RunConfig
from divtok.decide.cost import TokenCost
from divtok.errors import ModelError
from divtok.evidence.kind import EVIDENCE
from divtok.models.sizes import find_model
from divtok.score.facts import FACTS
from divtok.score.registry import ESTIMATORS

# What the first model of a pair tells without the second.
_OF_FIRST = ("logprob_p", "entropy_p")
_OF_SECOND = ("logprob_q", "entropy_q")


def active_parameters(config: RunConfig, model: str) -> int | None:
    """The parameters that a token goes through; None where the size of a model is not known."""
    try:
        size = find_model(model, config.revisions.get(model)).size
    except ModelError:  # a broken folder need not keep stored figures from being shown
        return None
    return None if size is None else size.active


def token_cost(config: RunConfig, generator: str, estimator: str | None = None) -> TokenCost:
    """In parameters; in tokens, reading for nothing, where a size is not known.

    Reading is one pass of each model of the scored pair, or of those that the estimator needs, the
    generator's own among them: a server that kept what it had while it wrote would spare that one.
    """
    write = active_parameters(config, generator)
    readers = (
        config.scored_pairs().get(generator, ())
        if estimator is None
        else reading_models(config, generator, estimator)
    )
    sizes = [active_parameters(config, name) for name in readers]
    known = [size for size in sizes if size is not None]
    if write is None or len(known) < len(sizes):
        return TokenCost(1.0, 0.0, "tokens")
    return TokenCost(float(write), float(sum(known)), "parameters")


def reading_models(config: RunConfig, generator: str, estimator: str) -> Sequence[str]:
    """The models that read a response for this estimator: of the pair, and for its evidence.

    A length needs none, and a stated confidence no pass of its own.
    """
    p, q = config.scored_pairs()[generator]
    if estimator in FACTS:
        return (p, q) if FACTS[estimator].uses_theta else ()
    spec, alone = ESTIMATORS.get(estimator), config.model_copy(update={"generators": [generator]})
    second = any(column not in _OF_FIRST for column in spec.columns)
    first = any(column not in _OF_SECOND for column in spec.columns)
    beside = [name for kind in spec.evidence for name in EVIDENCE.get(kind).models(alone)]
    return list(dict.fromkeys([*[p] * first, *[q] * second, *beside]))
