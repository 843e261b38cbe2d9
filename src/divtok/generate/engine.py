"""What an engine is: the source of trajectories, and all that the stages need to know about it.

An engine of another package needs no more than this, and an entry point that names `ENGINE`:

    @contextmanager
    def open_echo(setup: EngineSetup) -> Generator[Write]:
        def write(batches: Sequence[Sequence[Job]]) -> Iterator[Sequence[Generated]]:
            for batch in batches:
                yield [Generated(job.trajectory(job.problem.question, "stop")) for job in batch]

        yield write

    ENGINE = Engine(
        name="echo", summary="Repeats the question.", weights_here=False, open=open_echo
    )

    [project.entry-points."divtok.engines"]
    echo = "my_package.echo:ENGINE"

Knows no config and no run folder: the stages hand it an `EngineSetup` and keep what it yields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pydantic import BaseModel

from divtok.errors import ConfigError
from divtok.generate.jobs import Job
from divtok.models.load import DType, model_digest, resolve_dtype
from divtok.protocols.wording import Wording
from divtok.records import Call, Reading, Reply, Sampling, Trace, Trajectory
from divtok.registry import Registry
from divtok.trace.budget import Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSetup:
    """How one generator is to be sampled, as far as an engine has to know.

    `options` is an instance of the model that the engine brings, None where it brings none.
    `answered` are the pairs (server, model) that are known to answer, from earlier in the run.
    `auxiliary` is the other model of the pair that reads, `trace_columns` are the divergences that
    its traces have beside the usual ones, and `trace_budget` is what it may read at once: for an
    engine that gives traces.
    `words` are those that protocols ask in where they are not their own; an executor that works in
    another process brings them there with this.
    """

    model: str
    sampling: Sampling
    served_name: str  # what a server calls the model
    revision: str | None = None
    dtype: DType = "auto"
    device: str | None = None
    device_map: str | None = None
    compile: bool = False  # the layers, for a long job on a GPU
    batch_size: int = 128
    seed: int = 0
    options: Any = None
    answered: frozenset[tuple[str, str]] = frozenset()
    auxiliary: str | None = None
    auxiliary_revision: str | None = None
    trace_columns: tuple[str, ...] = ()
    trace_budget: Budget | None = None
    words: tuple[Wording, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """One finished row. A row that could not be generated is a failed trajectory with its reason.

    `call` says what it took to get it from a server. `sampled` has the generator's own log-probs,
    or why there are none; it is None where they were not asked for. `trace` is the row as generator
    and auxiliary have read it on the way, for engines that say they give it.
    """

    trajectory: Trajectory
    call: Call | None = None
    sampled: Reading | None = None
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A trajectory whose generator is asked how sure it is, with the question of its problem."""

    trajectory: Trajectory
    question: str


@dataclass(frozen=True, slots=True)
class Replied:
    """The generator's reply. There is no call where there was nothing to ask about."""

    reply: Reply
    call: Call | None = None


# Rows for batches of jobs. Each job gets one row; where an engine works batch by batch, the rows of
# a batch come together, otherwise they come as they are finished, in any grouping.
Write: TypeAlias = Callable[[Sequence[Sequence[Job]]], Iterator[Sequence[Generated]]]
Ask: TypeAlias = Callable[[Sequence[Sequence[Asked]]], Iterator[Sequence[Replied]]]
# What the rows depend on, beside the sampling: a run refuses to go on with anything of it changed.
Identity: TypeAlias = Callable[[Sequence[EngineSetup]], dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """How an engine asks its generators a further question, of at most so many tokens of reply."""

    open: Callable[[EngineSetup, int], AbstractContextManager[Ask]]
    identity: Identity
    by_row: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A source of trajectories.

    `weights_here` is False where a generator is a mere name, with no weights and no tokenizer on
    this machine. `open` loads or connects; it is None where nothing can be generated. `options` is
    the model of the engine's own settings, which config files give as `generate.options`. `check`
    refuses a setup before anything is loaded.

    `by_row` says that each row is made by itself, so that only missing rows are made again, and not
    the whole batches they are in. `replies` is None where the generator cannot be asked anything
    further, and `gives_logprobs` tells from the options whether rows come with `sampled`. Where the
    engine `gives_traces`, which options tell as well, every row that did not fail comes with its
    `trace`.
    """

    name: str
    summary: str
    weights_here: bool
    open: Callable[[EngineSetup], AbstractContextManager[Write]] | None = None
    options: type[BaseModel] | None = None
    check: Callable[[EngineSetup], None] = lambda _: None
    own_identity: Identity | None = None
    by_row: bool = False
    replies: Replies | None = None
    gives_logprobs: Callable[[Any], bool] = lambda _: False
    gives_traces: Callable[[Any], bool] = lambda _: False

    def identity(self, setups: Sequence[EngineSetup]) -> dict[str, object]:
        """What the rows of these setups depend on, beside the sampling."""
        if self.own_identity is not None:
            return self.own_identity(setups)
        models = weights_identity(setups) if self.weights_here else names_identity(setups)
        options = {s.model: s.options.model_dump(mode="json") for s in setups if s.options}
        return {"engine": self.name} | models | ({"options": options} if options else {})


def auxiliary_of(setup: EngineSetup, *, otherwise: str) -> EngineSetup:
    """The same for the auxiliary; `otherwise` is what to do where there is none."""
    if setup.auxiliary is None:
        raise ConfigError(
            f"No auxiliary is given to read beside '{setup.model}'.",
            next_step="Give one with its tokenizer (--auxiliary NAME, or trace.auxiliary=NAME), or "
            f"{otherwise}.",
        )
    return replace(setup, model=setup.auxiliary, revision=setup.auxiliary_revision)


def weights_identity(setups: Sequence[EngineSetup]) -> dict[str, object]:
    """The weights, and the dtype they really run in: rows of a GPU and a CPU do not mix."""
    return {
        "dtype": {
            s.model: resolve_dtype(
                s.model, s.dtype, device=s.device, device_map=s.device_map, revision=s.revision
            )
            for s in setups
        },
        "models": {s.model: model_digest(s.model, revision=s.revision) for s in setups},
    }


def names_identity(setups: Sequence[EngineSetup]) -> dict[str, object]:
    """As much as is known of a model behind a server: its name."""
    return {"models": {s.model: s.served_name for s in setups}}


ENGINES: Registry[Engine] = Registry(
    "engine", group="divtok.engines", home="divtok.generate.engines"
)


def register(engine: Engine) -> Engine:
    ENGINES.add(engine.name, engine)
    return engine
