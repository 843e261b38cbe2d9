"""The engine "transformers": a model that is loaded into this process, on a CPU or on GPUs.

Where it is asked to capture, the hidden states it writes with become traces, for which only the
auxiliary still has to read. The tokens are the same.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from divtok.divergences.divergence import further
from divtok.generate.engine import (
    Ask,
    Engine,
    EngineSetup,
    Generated,
    Replied,
    Replies,
    Write,
    auxiliary_of,
    register,
    weights_identity,
)
from divtok.generate.jobs import generate_batch
from divtok.models.load import LoadedModel, load_model
from divtok.section import Section


class TransformersSection(Section):
    """The section generate.transformers of a config."""

    capture: bool = False  # keep what tokens were drawn from, and trace with it


def load_writer(setup: EngineSetup) -> LoadedModel:
    """The model of a setup, which is to write token by token."""
    loaded = load_model(
        setup.model,
        revision=setup.revision,
        dtype=setup.dtype,
        device=setup.device,
        device_map=setup.device_map,
    )
    if setup.compile:
        from divtok.generate.steps import compile_steps

        compile_steps(loaded)
    return loaded


def _auxiliary(setup: EngineSetup) -> EngineSetup:
    return auxiliary_of(setup, otherwise="leave out generate.transformers.capture")


def _captures(options: TransformersSection | None) -> bool:
    return options is not None and options.capture


def _check(setup: EngineSetup) -> None:
    if _captures(setup.options):
        _auxiliary(setup)


@contextmanager
def _open(setup: EngineSetup) -> Generator[Write]:
    if _captures(setup.options):
        yield _captured(setup)
        return
    loaded = load_writer(setup)
    yield lambda batches: (
        [Generated(trajectory) for trajectory in generate_batch(loaded, batch)] for batch in batches
    )


def _captured(setup: EngineSetup) -> Write:
    from divtok.generate.captured import make_capturing  # a config needs the section alone

    pair = make_capturing(
        load_writer(setup),
        load_writer(_auxiliary(setup)),
        budget=setup.trace_budget,
        divergences=further(setup.trace_columns),
    )
    return lambda batches: (
        [Generated(row, trace=trace) for row, trace in pair.generate_batch(batch)]
        for batch in batches
    )


@contextmanager
def _open_replies(setup: EngineSetup, max_tokens: int) -> Generator[Ask]:
    from divtok.generate.replies import reply_batch

    loaded = load_writer(setup)
    yield lambda batches: (
        [
            Replied(reply)
            for reply in reply_batch(
                loaded,
                [asked.trajectory for asked in batch],
                [asked.question for asked in batch],
                max_tokens=max_tokens,
            )
        ]
        for batch in batches
    )


# For every engine whose weights are here, whatever has sampled the responses.
REPLIES = Replies(open=_open_replies, identity=weights_identity)

register(
    Engine(
        name="transformers",
        summary="Weights on this machine, sampled by divtok itself with transformers.",
        weights_here=True,
        open=_open,
        options=TransformersSection,
        check=_check,
        # Without its name, so that runs go on that were made before engines were named; and
        # without its options, which change no token.
        own_identity=weights_identity,
        replies=REPLIES,
        gives_traces=_captures,
    )
)
