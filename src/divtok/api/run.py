"""A run from Python: its tables as data frames, and the verbs that work on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from divtok.api.figures import FIGURES
from divtok.api.tables import Records, Shown
from divtok.api.votes import VOTE_FIELDS
from divtok.config.run import RunConfig
from divtok.config.shortcuts import spelled_out
from divtok.config.tree import override_texts
from divtok.decide.chosen import Vote
from divtok.decide.votes import Stop, Strategy
from divtok.errors import NothingScoredError, StoreError, UsageError
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.fit_any import AnyFit
from divtok.evaluate.fit_map import MapFit
from divtok.evaluate.fit_rate import RateFit
from divtok.evaluate.maps import MapKind
from divtok.records import CountedTokens, Evaluation, Trace
from divtok.score.fitted import Target, What
from divtok.score.suspicion import SHOWN, SuspectStep
from divtok.stages.stored import counting, open_run, stored_config
from divtok.stages.swept import SweptRow
from divtok.store import run as store
from divtok.store.table import Table
from divtok.store.verify import Checked

if TYPE_CHECKING:
    import polars as pl

    from divtok.api.running import RunningResults
    from divtok.api.scoring import PolicyLike
    from divtok.decide.offer import Offer
    from divtok.decide.policy import Below
    from divtok.stages.policies import Applied

Settings: TypeAlias = Mapping[str, Any]
Verdicts: TypeAlias = Literal["ours", "theirs", "both"]
Pairs: TypeAlias = Mapping[str, tuple[str, str]]


class Run(Shown):
    """A run folder: one folder with everything that was made, and the verbs that work on it.

    Opened by its name under runs/, or by its folder; `divtok.run` makes one. Tables are polars
    frames, read when they are asked for. The folder is the same as the command line's, so either
    may go on with what the other began.

    Example:
        >>> import divtok
        >>> made = divtok.run(family="tiny", limit=2, benchmarks=["arith-easy"], out="example")
        >>> run = divtok.Run("./example")
        >>> run.config["family"], len(run.problems)
        ('tiny', 2)
        >>> run.trajectories["key"][0] in run.grades["key"]
        True
    """

    def __init__(self, path: str | Path) -> None:
        self._run = store.Run.open(path) if isinstance(path, Path) else open_run(path)

    @property
    def path(self) -> Path:
        return self._run.path

    @property
    def config(self) -> dict[str, Any]:
        """The resolved config, as run.yaml has it."""
        return self._config().model_dump(mode="json")

    @property
    def problems(self) -> pl.DataFrame:
        return self._run.problems.frame()

    @property
    def trajectories(self) -> pl.DataFrame:
        return self._run.trajectories.frame()

    @property
    def grades(self) -> pl.DataFrame:
        return self._run.grades.frame()

    @property
    def verdicts(self) -> pl.DataFrame:
        """What the tool that the responses were imported from said of them."""
        return self._run.verdicts.frame()

    @property
    def traces(self) -> Traces:
        """The numbers of each token: by key, or one after another; a whole frame on request."""
        return Traces(self._run.traces, self._pairs, lambda: self._config().score.tokens)

    @property
    def counts(self) -> pl.DataFrame:
        return self._run.counts.frame()

    @property
    def confidences(self) -> pl.DataFrame:
        return self._run.confidences.frame()

    @property
    def evaluations(self) -> pl.DataFrame:
        """As the last report kept them; `evaluate()` makes them anew."""
        return self._run.evaluations.frame()

    @property
    def failures(self) -> Sequence[str]:
        """Why rows hold no numbers, one text for each."""
        from divtok.stages.failures import failed_rows

        return failed_rows(self._run).reasons

    def grade(
        self,
        config: Settings | None = None,
        *,
        verdict: Verdicts | None = None,
        scorer: str | None = None,
        retry_failed: bool = False,
    ) -> None:
        """`divtok grade`: compare the answers of the trajectories with the gold answers.

        With `verdict="theirs"` the grades are what the tool said that imported responses come from.
        """
        from divtok.stages.rescore import regrade

        given = {**(config or {}), **spelled_out({"verdict": verdict, "scorer": scorer})}
        regrade(self._run, list(override_texts(given)), retry_failed=retry_failed)

    def gather(self, config: Settings | None = None, *, retry_failed: bool = False) -> None:
        """`divtok gather`: read what is not read yet, and gather what the estimators need.

        `config` has overrides, such as {"score.estimators": ["whitebox"]}; the run remembers them.
        """
        from divtok.stages.rescore import regather

        regather(self._run, list(override_texts(config or {})), retry_failed=retry_failed)

    def score(
        self,
        config: Settings | None = None,
        *,
        theta: float | None = None,
        pair: tuple[str, str] | None = None,
        family: str | None = None,
        fitted: str | Path | Sequence[str | Path] = (),
        verdict: Verdicts | None = None,
        scorer: str | None = None,
        retry_failed: bool = False,
    ) -> pl.DataFrame:
        """`divtok score`: the confidences of every estimator, from the traces.

        With a pair or a family those models read the responses first, as far as they have not yet.
        `fitted` is a file that `fit` kept, or the run that holds it; or several.
        """
        from divtok.stages.evaluate import has_grades
        from divtok.stages.report import report
        from divtok.stages.rescore import rescore

        given = {**(config or {}), **spelled_out({"verdict": verdict, "scorer": scorer})}
        read = rescore(
            self._run,
            list(override_texts(given)),
            theta=theta,
            pair=pair,
            family=family,
            fitted=[str(fitted)] if isinstance(fitted, str | Path) else list(map(str, fitted)),
            retry_failed=retry_failed,
        )
        if read is not None and has_grades(self._run, read):
            report(self._run, read)
        return self.confidences

    def evaluate(self) -> Records[Evaluation]:
        """`divtok evaluate`: ECE, AUROC and the rest by benchmark, generator and estimator."""
        from divtok.stages.evaluate import results_of

        found = results_of(self._run, self._config()).evaluations
        return Records(Evaluation, found, shown=FIGURES)

    def sweep(
        self,
        *,
        divergence: Sequence[str] | None = None,
        n: Sequence[int] | None = None,
        k: Sequence[int] | None = None,
    ) -> Records[SweptRow]:
        """`divtok sweep`: the best theta for each n and k; the grid is in report/tables."""
        from divtok.stages.swept import sweep

        found, _ = sweep(self._run, self._config(), divergence=divergence, n=n, k=k)
        return Records(SweptRow, found)

    @overload
    def fit(self, what: Literal["theta"] = "theta", *, target: Target = "grades") -> ThetaFit: ...
    @overload
    def fit(
        self, what: Literal["rate"], *, estimator: str | None = None, target: Target = "grades"
    ) -> RateFit: ...
    @overload
    def fit(
        self, what: MapKind, *, estimator: str | None = None, target: Target = "grades"
    ) -> MapFit: ...
    def fit(
        self, what: What = "theta", *, estimator: str | None = None, target: Target = "grades"
    ) -> AnyFit:
        """`divtok fit --run`: what fits the run's responses, kept in its folder `fits`.

        The words are those of `divtok.fit`. With `target="agreement"` no grade is used.
        """
        from divtok.stages.fit import fit, keep

        config = self._config()
        found = fit(self._run, config, what=what, estimator=estimator, target=target)
        keep(self._run, found)
        return found

    def decide(
        self,
        *,
        risk: float,
        delta: float = 0.1,
        estimator: str | None = None,
        generator: str | None = None,
        below: Below = "abstain",
        to: str | None = None,
        seed: int = 0,
    ) -> dict[str, Offer]:
        """`divtok decide`: generator -> what can be promised; its policy is kept in `policies`.

        The words are those of `divtok.decide`. Each generator has a pair, so a policy, of its own.
        """
        from divtok.stages import decide as stage

        offers = stage.decide(
            self._run,
            self._config(),
            risk=risk,
            delta=delta,
            estimator=estimator,
            generator=generator,
            below=below,
            to=to,
            seed=seed,
        )
        return stage.keep(self._run, offers)

    def apply(self, policy: PolicyLike) -> Applied:
        """`divtok decide --policy`: what a policy says of each response by its pair.

        Gives the rows with their decisions, how many each action is for, how many of the accepted
        are wrong where they are graded, and a warning where the confidences look unlike those that
        the policy was made on.
        """
        from divtok.api.scoring import policy_of
        from divtok.stages.policies import apply_policy

        return apply_policy(self._run, self._config(), policy_of(policy))

    def running(self) -> RunningResults:
        """What confidences are worth while responses are written, and what stopping early saves.

        From the traces: AUROC and ECE of prefixes, the tokens that need not be written where a
        threshold is out of reach, and what comes of trying the next sample instead.
        """
        from divtok.api.running import as_tables
        from divtok.stages.running import running

        return as_tables(running(self._run, self._config()))

    def report(self) -> Path:
        """`divtok report`: write tables and figures, and say where."""
        from divtok.stages.report import report

        report(self._run, self._config())
        return self._run.report / "README.md"

    def view(
        self,
        out: str | Path | None = None,
        *,
        limit: int | None = None,
        estimator: str | None = None,
        against: Run | str | Path | None = None,
    ) -> Path:
        """`divtok view`: write one page with every response and its tokens, and say where.

        The page opens from the disk and asks nothing of a network. It has the first `limit`
        responses, by default 1,000; with `against` also what another run says of the same ones.
        """
        from divtok.progress import say
        from divtok.stages.view import view

        other = None if against is None else against if isinstance(against, Run) else Run(against)
        found = view(
            self._run,
            self._config(),
            out=None if out is None else Path(out),
            tell=say,
            limit=limit,
            estimator=estimator,
            against=None if other is None else other._run,
        )
        return found.path

    def votes(
        self,
        *,
        strategy: Strategy | None = None,
        estimator: str | None = None,
        samples: int | None = None,
        stop: Stop = None,
    ) -> Records[Vote]:
        """`divtok vote`: one answer for each problem of each generator; words as in `divtok.vote`.

        Votes are weighted by `estimator`, by default dtc_weighted, or dtc_lin without it. How often
        each way to vote is right is in the tables `votes*` of the report.
        """
        from divtok.stages.vote import ballots_of, check_several, chosen_votes

        ballots = ballots_of(self._run, self._config())
        check_several(ballots, samples)
        found = chosen_votes(
            ballots, strategy=strategy, estimator=estimator, samples=samples, stop=stop
        )
        return Records(Vote, found, shown=VOTE_FIELDS)

    def rows(self, *, tokens: bool = True) -> pl.DataFrame:
        """`divtok export` as a frame: a row for each response, with all that is known of it.

        Question, response, answer, gold, verdict, a column for each estimator, count and, unless
        `tokens` is False, the divergent tokens. `reason` says why there is no confidence.
        """
        from divtok.progress import say
        from divtok.stages.rows import RunRows

        return RunRows(self._run, self._config(), tell=say, tokens=tokens).frame()

    def suspect_steps(self, key: str) -> Records[SuspectStep]:
        """`divtok show RUN KEY --steps`: the steps of a response, the most suspect first."""
        from divtok.progress import say
        from divtok.stages.facts import Facts
        from divtok.stages.show import keys_of, shown
        from divtok.stages.suspect_steps import only_key, steps_in

        config = self._config()
        facts = Facts(self._run, config)
        one = only_key(keys_of(self._run, facts, key))
        found = shown(self._run, config, facts, one, tell=say)
        return Records(SuspectStep, steps_in(self._run, found).steps, shown=SHOWN)

    def export(
        self,
        out: str | Path,
        *,
        format: Literal["csv", "jsonl", "parquet"] | None = None,
        onto: str | Path | None = None,
        tokens: bool = True,
    ) -> int:
        """`divtok export`: write the rows to a file; with `onto`, that file with columns added.

        The format is what the ending of `out` says, or that of the file `onto`. Gives the number of
        responses in it.
        """
        from divtok.api.rows_out import exported

        return exported(self._run, self._config(), out, format, onto, tokens=tokens)

    def verify(self, *, accept: bool = False) -> Checked:
        """`divtok verify`: check every file against its checksum."""
        from divtok.stages import verify

        if accept:
            verify.accept(self._run)
        return verify.verify(self._run)

    def to_polars(self) -> pl.DataFrame:
        """The evaluations, anew from the tables."""
        return self.evaluate().to_polars()

    def __repr__(self) -> str:
        return self._summary()

    def _repr_html_(self) -> str:
        import html

        try:
            figures = self.evaluate()._repr_html_()
        except (NothingScoredError, StoreError):
            figures = ""  # nothing is scored yet
        return f"<p>{html.escape(self._summary())}</p>{figures}"

    def _summary(self) -> str:
        filled = {t.layout.name: len(t.keys()) for t in self._run.tables}
        rows = ", ".join(f"{name} {count:,}" for name, count in filled.items() if count)
        return f"<Run {self.path}: {rows or 'empty'}>"

    def _config(self) -> RunConfig:
        return stored_config(self._run)

    def _pairs(self) -> Pairs:
        """trajectory key -> the pair whose trace is scored"""
        from divtok.store.responses import stored_responses

        pairs = self._config().scored_pairs()
        rows = stored_responses(self._run).items()
        return {key: pairs[row.generator] for key, row in rows if row.generator in pairs}


class Traces:
    """The traces of a run, which may be larger than memory: each is read when it is asked for."""

    def __init__(
        self,
        table: Table[Trace],
        pairs: Callable[[], Pairs],
        tokens: Callable[[], CountedTokens],
    ) -> None:
        self._table, self._pairs, self._lookup = table, pairs, table.lookup()
        self._tokens = tokens
        self._known: Pairs | None = None

    def __getitem__(self, key: str) -> Trace:
        """That of the pair that is scored, by the trajectory's key."""
        if self._known is None:
            self._known = self._pairs()
        if key not in self._known:
            raise UsageError(f"There is no trajectory {key} that is scored.")
        return counting(self._lookup[(key, *self._known[key])], self._tokens())

    def __iter__(self) -> Iterator[Trace]:
        tokens = self._tokens()
        return (counting(trace, tokens) for traces in self._table.batches() for trace in traces)

    def __len__(self) -> int:
        return len(self._table.keys())

    def to_polars(self) -> pl.DataFrame:
        """All of them at once, which takes some 30 bytes a token."""
        return self._table.frame()
