"""What a run lacks before it can be scored, evaluated, swept or fitted, and what makes it.

Every step that is named is a command that works when it is typed, with this run's own pair and
theta where they are known. Reads the config, keys and single columns; no model and no tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from divtok.config.run import RunConfig
from divtok.errors import DataError, DivtokError, NothingScoredError, command
from divtok.evidence.kind import no_trajectories
from divtok.records import Reason
from divtok.stages.stored import DEFAULT_FAMILY, read_by, stored_config
from divtok.store.columns import reason_of
from divtok.store.responses import rows_of
from divtok.store.run import Run

# A family whose models are here: what it is named for can be tried at once.
EXAMPLE_FAMILY = "tiny"


class Unread(NamedTuple):
    """Of the responses that the scored pairs have to read, those that they have not read."""

    left: int
    of: int

    @property
    def all(self) -> bool:
        return 0 < self.of == self.left


def unread(run: Run, config: RunConfig) -> Unread:
    """Failed responses hold nothing to read; those of generators without a pair are not scored."""
    pairs, traced = config.scored_pairs(), run.traces.keys()
    keys = [
        (key, *pairs[generator])
        for key, generator, finish in rows_of(
            run.trajectories, ("key", "generator", "finish_reason")
        )
        if generator in pairs and finish != "failed"
    ]
    return Unread(sum(key not in traced for key in keys), len(keys))


def unread_line(run: Run, config: RunConfig) -> str | None:
    """How many responses are left to read and what reads them; None where there are none."""
    left, of = unread(run, config)
    if not left:
        return None
    return (
        f"{left} of {of} responses were not read yet, so they have no confidence; "
        f"{how_to_read(run, config)}"
    )


def how_to_read(run: Run, config: RunConfig) -> str:
    """The command that reads a run's responses as its config says, as the end of a sentence."""
    pairs = config.scored_pairs()
    told = config.trace.reader is not None or config.trace.auxiliary is not None
    if config.engine.open is None and not told and config.family == DEFAULT_FAMILY:
        # Imported, and nobody has said who reads: the config names a family all the same.
        tried = command("score", run.path, "--family", EXAMPLE_FAMILY)
        return (
            f"read them with the models of a family, as in: {tried}; or with two of your own that "
            "share a tokenizer: --pair P Q instead of --family"
        )
    theta = config.fitted_theta
    given = [] if theta is None else [f"score.theta={theta}"]
    named = [("--family", config.family)] if config.family is not None else []
    pair = set(pairs.values()).pop() if len(set(pairs.values())) == 1 else None
    for words in [*named, *([] if pair is None else [("--pair", *pair)])]:
        for overrides in ([], given):
            if _means(run, config, words, overrides):
                option = ["--theta", str(theta)] if overrides else []
                return f"read them: {command('score', run.path, *words, *option)}"
    if config.engine.open is not None:
        return f"read them: {command('run', '--out', run.path)}"
    return f"read them: {command('gather', run.path)}"


def _means(run: Run, config: RunConfig, words: tuple[str, ...], overrides: list[str]) -> bool:
    """Whether `score` with this pair or family reads and counts as the run's config says."""
    option, *names = words
    pair = (names[0], names[1]) if option == "--pair" else None
    family = names[0] if option == "--family" else None
    foreign = pair is not None and pair[0] not in config.scored_pairs()
    after = stored_config(run, read_by(pair, family, overrides, foreign=foreign))
    return (after.scored_pairs(), after.fitted_theta) == (
        config.scored_pairs(),
        config.fitted_theta,
    )


def check_read(run: Run, config: RunConfig) -> None:
    """An error where there is no response, or not one of them was read."""
    if not run.trajectories.keys():
        raise no_trajectories(run)
    if unread(run, config).all:
        raise NothingScoredError(
            f"The responses of {run.path} were not read yet.", next_step=_sentence(run, config)
        )


def not_scored(run: Run, config: RunConfig) -> DivtokError:
    """Why a run has no confidences: the first thing that is missing on the way to them."""
    try:
        check_read(run, config)
    except DivtokError as error:
        return error
    why = first_failure(run)
    if why is not None and not _any_trace(run):
        return nothing_scored(run, config, why)
    return NothingScoredError(
        f"The run {run.path} has no confidences yet.",
        next_step=f"Score it first: {command('score', run.path)}",
    )


def nothing_scored(run: Run, config: RunConfig, why: str | None) -> NothingScoredError:
    """Where everything was read and not one response could be scored; `why` not, of the first."""
    p, q = next(iter(config.scored_pairs().values()))
    kind = why.kind if isinstance(why, Reason) else None
    steps = {
        "nonfinite": f"Look at the two models: {command('check', '--pair', p, q, '--measure')}",
        "too_long": "Take models that read more at once: --pair P Q.",
    }
    return NothingScoredError(
        f"Not one trajectory of {run.path} could be scored"
        + (f"; the first: {why}." if why is not None else "."),
        next_step=steps.get(
            kind or "", "Look at the column 'reason' of its traces and of what was gathered."
        ),
    )


def not_graded(run: Run, key: str) -> DataError:
    return DataError(
        f"Trajectory {key} of {run.path} has no grade.",
        next_step=f"Grade it first: {command('grade', run.path)}",
    )


def first_failure(run: Run) -> str | None:
    """Why the first trace without numbers has none."""
    columns = ("status", "reason", "reason_kind")
    for status, text, kind in rows_of(run.traces, columns):
        if status != "ok":
            return reason_of(text, kind)
    return None


def _any_trace(run: Run) -> bool:
    return any(status == "ok" for (status,) in rows_of(run.traces, ("status",)))


def _sentence(run: Run, config: RunConfig) -> str:
    text = how_to_read(run, config)
    return text[0].upper() + text[1:]
