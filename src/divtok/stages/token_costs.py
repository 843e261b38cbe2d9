"""What a token of a run's responses costs, from the sizes of the models that write and read it."""

from __future__ import annotations

from divtok.config.run import RunConfig
from divtok.decide.cost import TokenCost
from divtok.models.sizes import find_model


def active_parameters(config: RunConfig, model: str) -> int | None:
    """The parameters that a token goes through; None where the size of a model is not known."""
    size = find_model(model, config.revisions.get(model)).size
    return None if size is None else size.active


def token_cost(config: RunConfig, generator: str) -> TokenCost:
    """In parameters; in tokens, reading for nothing, where a size is not known.

    Reading is one pass of each model of the scored pair, the generator's own among them: a server
    that kept what it had while it wrote would spare that one.
    """
    write = active_parameters(config, generator)
    pair = config.scored_pairs().get(generator, ())
    sizes = [active_parameters(config, name) for name in pair]
    known = [size for size in sizes if size is not None]
    if write is None or len(known) < len(sizes):
        return TokenCost(1.0, 0.0, "tokens")
    return TokenCost(float(write), float(sum(known)), "parameters")
