"""A run's responses graded or scored anew: by the config alone, or read by other models first.

With a pair or a family that is all that is left to do for imported responses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.errors import UsageError
from divtok.families.family import get_family, pairing_family
from divtok.stages.choices import check_addresses
from divtok.stages.grade import grade
from divtok.stages.run import run_stages
from divtok.stages.score import score
from divtok.stages.stored import stored_config
from divtok.store.run import Run

# The parts of a config that come behind the responses.
_BEHIND_RESPONSES = (
    *("trace", "servers", "served_names", "tokenizers", "revisions"),
    *("grade", "evidence", "score", "evaluate"),
)


def regrade(run: Run, overrides: Sequence[str] = (), *, retry_failed: bool = False) -> None:
    """trajectories -> grades, by the stored config and these overrides, which are remembered."""
    for override in overrides:
        if not override.startswith(("grade.", "benchmark_graders.")):
            raise UsageError(
                f"'{override}' changes more than the grades.",
                next_step="Change only: grade, benchmark_graders.",
            )
    config = stored_config(run, overrides)
    check_addresses(config)
    with run.lock():
        grade(run, config, retry_failed=retry_failed)
        if overrides:
            run.write_config(to_yaml(config))


def rescore(
    run: Run,
    overrides: Sequence[str] = (),
    *,
    theta: float | None = None,
    pair: tuple[str, str] | None = None,
    family: str | None = None,
    retry_failed: bool = False,
) -> RunConfig | None:
    """traces -> confidences, or everything behind the trajectories where a pair is named.

    Gives the config of the latter, which is to be reported; None where only scores are new.
    """
    given = _with_theta(list(overrides), theta)
    if pair is None and family is None:
        if retry_failed:
            raise UsageError(
                "--retry-failed reads again what failed, but there is nothing to read with.",
                next_step="Give --pair P Q or --family NAME too.",
            )
        for override in given:
            if override.startswith(("grade.verdicts=", "grade.scorer=")):
                raise UsageError(
                    "Whose verdicts count changes the grades, not the scores.",
                    next_step=f"Give it to 'divtok grade {run.path}', or give --pair P Q too.",
                )
            if not override.startswith("score."):
                raise UsageError(
                    f"'{override}' changes more than the scores.",
                    next_step=f"Give it to 'divtok gather {run.path}', which makes what is "
                    "missing.",
                )
        config = stored_config(run, given)
        with run.lock():
            score(run, config)
            run.write_config(to_yaml(resolve(config)))
        return None
    _check_overrides(given, pair)
    generators = [g.model for g in stored_config(run).generator_presets()]
    foreign = pair is not None and pair[0] not in generators
    config = stored_config(run, read_by(pair, family, given, foreign=foreign))
    run_stages(run, config, retry_failed=retry_failed, sampled=True)
    return config


def read_by(
    pair: tuple[str, str] | None, family: str | None, overrides: list[str], *, foreign: bool
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


def _check_overrides(overrides: list[str], pair: tuple[str, str] | None) -> None:
    """Refuse what the responses that are there depend on, and a pair that is named twice."""
    for override in overrides:
        key = override.partition("=")[0]
        if key.partition(".")[0] not in _BEHIND_RESPONSES:
            raise UsageError(
                f"'{override}' would change what the run's responses are.",
                next_step=f"Change only: {', '.join(_BEHIND_RESPONSES)}.",
            )
        if key in ("trace.reader", "trace.auxiliary"):
            given = "--pair" if pair is not None else "--family"
            raise UsageError(
                f"Both {given} and '{override}' say who reads.", next_step="Give one of them."
            )


def _with_theta(overrides: list[str], theta: float | None) -> list[str]:
    if theta is None:
        return overrides
    from divtok.score.registry import check_parameter

    check_parameter("theta", theta)
    return [*overrides, f"score.theta={theta}"]
