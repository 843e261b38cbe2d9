"""The engine "transformers": a model that is loaded into this process, on a CPU or on GPUs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from divtok.generate.engine import (
    Ask,
    Engine,
    EngineSetup,
    Generated,
    Replied,
    Replies,
    Write,
    register,
    weights_identity,
)
from divtok.generate.jobs import generate_batch
from divtok.generate.replies import reply_batch
from divtok.models.load import LoadedModel, load_model


def _load(setup: EngineSetup) -> LoadedModel:
    return load_model(
        setup.model,
        revision=setup.revision,
        dtype=setup.dtype,
        device=setup.device,
        device_map=setup.device_map,
    )


@contextmanager
def _open(setup: EngineSetup) -> Generator[Write]:
    loaded = _load(setup)
    yield lambda batches: (
        [Generated(trajectory) for trajectory in generate_batch(loaded, batch)] for batch in batches
    )


@contextmanager
def _open_replies(setup: EngineSetup, max_tokens: int) -> Generator[Ask]:
    loaded = _load(setup)
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
        # Without its name, so that runs go on that were made before engines were named.
        own_identity=weights_identity,
        replies=REPLIES,
    )
)
