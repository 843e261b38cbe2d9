"""The engine "speculative": the auxiliary drafts, the generator checks, and both are recorded.

What is written is distributed as the generator alone would write it. Each response comes with the
trace that the stage trace would otherwise read it for once more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

from pydantic import Field

from divtok.divergences.divergence import further
from divtok.errors import ConfigError
from divtok.generate.engine import (
    Engine,
    EngineSetup,
    Generated,
    Write,
    auxiliary_of,
    register,
    weights_identity,
)
from divtok.generate.engines.transformers import REPLIES, load_writer
from divtok.section import Section


class SpeculativeSection(Section):
    """The section generate.speculative of a config."""

    k: Annotated[int, Field(ge=0, le=32)] = 4  # tokens that are drafted in a round; 0: none


def _auxiliary(setup: EngineSetup) -> EngineSetup:
    """The same for the model that drafts."""
    return auxiliary_of(setup, otherwise="use generate.engine=transformers")


def _check(setup: EngineSetup) -> None:
    if _auxiliary(setup).model == setup.model:
        raise ConfigError(
            f"'{setup.model}' cannot draft for itself.",
            next_step="Name a smaller model of its series: trace.auxiliary=NAME",
        )


@contextmanager
def _open(setup: EngineSetup) -> Generator[Write]:
    from divtok.generate.speculative.writing import make_pair  # a config needs the section alone

    options: SpeculativeSection = setup.options
    writers = make_pair(
        load_writer(setup),
        load_writer(_auxiliary(setup)),
        drafts=options.k,
        divergences=further(setup.trace_columns),
    )
    yield lambda batches: (
        [Generated(row, trace=trace) for row, trace in writers.generate_batch(batch)]
        for batch in batches
    )


def _identity(setups: Sequence[EngineSetup]) -> dict[str, object]:
    """The auxiliary and the length of a draft change no distribution, but which draws are made."""
    drafting = {setup.model: _auxiliary(setup) for setup in setups}
    known = weights_identity(list(drafting.values()))
    return {
        "engine": "speculative",
        **weights_identity(setups),
        "trace.auxiliary": {model: setup.model for model, setup in drafting.items()},
        "auxiliary_dtype": known["dtype"],
        "auxiliary_files": known["models"],
        "generate.speculative.k": {setup.model: setup.options.k for setup in setups},
    }


register(
    Engine(
        name="speculative",
        summary="Weights on this machine, with drafts of the auxiliary; traces come with the rows.",
        weights_here=True,
        open=_open,
        options=SpeculativeSection,
        check=_check,
        own_identity=_identity,
        replies=REPLIES,
        gives_traces=lambda _: True,
    )
)
