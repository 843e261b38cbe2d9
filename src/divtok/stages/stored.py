"""Where a run is, and what several stages read of it: its config, scored traces, their dtypes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from divtok.config.run import RunConfig, read_config
from divtok.errors import DataError, StoreError, UsageError
from divtok.families.family import get_family, pairing_family
from divtok.records import CountedTokens, Trace
from divtok.store.responses import Response
from divtok.store.run import CONFIG_FILE, Run, is_run, run_path

T = TypeVar("T")

# Whose pair reads responses that were imported, where nobody says.
DEFAULT_FAMILY = "blackbox"


def open_run(run: str) -> Run:
    """A run by folder or by name."""
    folder = Path(run)
    return Run.open(folder if is_run(folder) or {"/", os.sep} & set(run) else run_path(run))


def run_folder(name: str | None, out: Path | None, *, default: str) -> Path:
    """The folder of a run that need not be there yet."""
    if name is not None and out is not None:
        raise UsageError("Both --name and --out were given.", next_step="Give one of them.")
    return out if out is not None else run_path(default if name is None else name)


def stored_config(run: Run, overrides: Sequence[str] = ()) -> RunConfig:
    """The config the run was made with, with `dotted.key=value` overrides on top."""
    text = run.config_text()
    if text is None:
        raise StoreError(
            f"The run {run.path} has no {CONFIG_FILE}.",
            next_step="Make it with 'divtok run' or 'divtok import'.",
        )
    return read_config(text, overrides, source=str(run.path / CONFIG_FILE))


def read_by(
    pair: tuple[str, str] | None, family: str | None, overrides: Sequence[str], *, foreign: bool
) -> list[str]:
    """Overrides that put the pair and the theta that belongs to it into a stored config."""
    if pair is not None and family is not None:
        raise UsageError("Both --pair and --family were given.", next_step="Give one of them.")
    has_theta = any(override.startswith("score.theta=") for override in overrides)
    known = pairing_family(*pair, foreign=foreign) if pair else get_family(family or "")
    named = [] if family is None else [f"family={family}"]
    # As YAML text, so that a name is never taken for a number; null leaves it to the family.
    p, q = (json.dumps(name, ensure_ascii=False) for name in pair or (None, None))
    reads = [*overrides, *named, f"trace.reader={p}", f"trace.auxiliary={q}"]
    if has_theta:
        return [*reads, "score.without_theta=false"]
    theta = "null" if known is None else known.theta
    return [*reads, f"score.theta={theta}", f"score.without_theta={known is None}".lower()]


def scored_traces(
    run: Run, config: RunConfig, responses: Mapping[str, Response]
) -> Iterator[tuple[Response, Trace]]:
    """The traces of the pairs that are scored, shard by shard, each with its response.

    `responses` are all of the run. The tokens that the config names can count.
    """
    pairs = config.scored_pairs()
    for traces in run.traces.batches():
        for trace in traces:
            response = response_of(run, trace.key, responses)
            if (trace.p, trace.q) == pairs.get(response.generator):
                yield response, counting(trace, config.score.tokens)


def counting(trace: Trace, counted: CountedTokens) -> Trace:
    """The trace with these tokens as those that can count."""
    return trace if trace.counted == counted else replace(trace, counted=counted)


def response_of(run: Run, key: str, responses: Mapping[str, T]) -> T:
    """What is known of the response that a trace was made of."""
    if key not in responses:
        raise DataError(
            f"The trace {key} of {run.path} belongs to no trajectory.",
            next_step="Put the missing trajectories back, or trace anew in another run.",
        )
    return responses[key]


def trace_dtypes(run: Run) -> dict[str, str]:
    """model -> the dtype it was traced in, as far as the manifest tells."""
    found: dict[str, str] = {}
    for name, section in (run.manifest() or {}).items():
        if name.startswith("trace "):
            found |= section["dtype"]
    return found
