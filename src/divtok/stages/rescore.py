"""A run's responses graded or scored anew: by the config alone, or read by other models first.

With a pair or a family that is all that is left to do for imported responses.
"""

from __future__ import annotations

from collections.abc import Sequence

from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.errors import UsageError, command
from divtok.progress import say
from divtok.stages.choices import check_addresses, check_choices
from divtok.stages.fits import fit_overrides, said_keys, with_fits
from divtok.stages.gather import gather
from divtok.stages.grade import grade
from divtok.stages.missing import unread_line
from divtok.stages.report_age import say_if_older
from divtok.stages.run import run_stages
from divtok.stages.score import score
from divtok.stages.stored import read_by, stored_config
from divtok.stages.trace import trace
from divtok.store.run import Run

# The parts of a config that come behind the responses.
_BEHIND_RESPONSES = (
    *("trace", "servers", "served_names", "tokenizers", "revisions"),
    *("grade", "evidence", "prm", "score", "evaluate"),
)


# What `gather` goes by: who reads, what it is read for, and with which models.
_GATHERED = (
    *("trace", "servers", "served_names", "tokenizers", "revisions"),
    *("bases", "projections", "prm", "evidence", "score.estimators"),
)
_GRADED = ("grade", "benchmark_graders")
_SCORED = ("score",)


def regrade(run: Run, overrides: Sequence[str] = (), *, retry_failed: bool = False) -> None:
    """trajectories -> grades, by the stored config and these overrides, which are remembered."""
    _only(run, overrides, _GRADED, "the grades")
    config = stored_config(run, overrides)
    check_addresses(config)
    with run.lock():
        grade(run, config, retry_failed=retry_failed)
        if overrides:
            run.write_config(to_yaml(config))
    say_if_older(run)


def regather(run: Run, overrides: Sequence[str] = (), *, retry_failed: bool = False) -> None:
    """trajectories -> traces and evidence, as far as the config and these overrides need them."""
    _only(run, overrides, _GATHERED, "what is gathered")
    config = stored_config(run, overrides)
    check_choices(config)
    with run.lock():
        trace(run, config, retry_failed=retry_failed)
        gather(run, config, retry_failed=retry_failed)
        run.write_config(to_yaml(config))


def retrace(
    run: Run,
    overrides: Sequence[str] = (),
    machine: Sequence[str] = (),
    *,
    retry_failed: bool = False,
) -> None:
    """trajectories -> traces; `machine` are overrides that are not remembered."""
    _only(run, overrides, ("trace",), "the traces")
    config = stored_config(run, [*overrides, *machine])
    check_choices(config)
    with run.lock():
        trace(run, config, retry_failed=retry_failed)
        if overrides:
            run.write_config(to_yaml(stored_config(run, overrides)))


def rescore(
    run: Run,
    overrides: Sequence[str] = (),
    *,
    theta: float | None = None,
    pair: tuple[str, str] | None = None,
    family: str | None = None,
    fitted: Sequence[str] = (),
    retry_failed: bool = False,
) -> RunConfig | None:
    """traces -> confidences, or everything behind the trajectories where a pair is named.

    `fitted` are files of fits, or runs that hold one: a fitted theta or rate is set by it.

    Gives the config of the latter, which is to be reported; None where only scores are new.
    """
    said = _with_theta(list(overrides), theta)
    given = [*said, *fit_overrides(fitted)]
    keys = said_keys(given)
    over = "fitted" in keys  # what is named now goes before what the run has from before
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
                    next_step=f"Give it to the grades: {command('grade', run.path, override)}",
                )
        _only(run, given, _SCORED, "the scores")
        config = with_fits(stored_config(run, given), said=keys, over=over)
        with run.lock():
            score(run, config)
            run.write_config(to_yaml(resolve(config)))
        left = unread_line(run, config)
        if left is not None:
            say(f"score: {left}")
        say_if_older(run)
        return None
    _check_overrides(given, pair)
    generators = [g.model for g in stored_config(run).generator_presets()]
    foreign = pair is not None and pair[0] not in generators
    config = stored_config(run, read_by(pair, family, given, foreign=foreign))
    config = with_fits(config, said=keys, over=over)
    run_stages(run, config, retry_failed=retry_failed, sampled=True)
    return config


def _only(run: Run, overrides: Sequence[str], keys: Sequence[str], what: str) -> None:
    """Refuse overrides of anything else, and name the keys that apply and who takes this one."""
    for override in overrides:
        key = override.partition("=")[0]
        if not _among(key, keys):
            raise UsageError(
                f"'{override}' changes more than {what}.",
                next_step=f"Change only: {', '.join(keys)}. {_taken_by(run, key, override)}",
            )


def _among(key: str, keys: Sequence[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in keys)


def _taken_by(run: Run, key: str, override: str) -> str:
    """The command that takes an override which another one refused."""
    for verb, keys in (("grade", _GRADED), ("gather", _GATHERED), ("score", _SCORED)):
        if _among(key, keys):
            return f"This one goes to: {command(verb, run.path, override)}"
    if stored_config(run).engine.open is None:
        return "The responses were imported, so that this changes nothing here."
    return f"This one is for the whole run: {command('run', '--out', run.path, override)}"


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
