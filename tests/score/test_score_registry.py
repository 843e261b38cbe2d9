"""Estimators by name: what they need, their parameters, and the one check of what they return."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import pytest
from score_samples import EVIDENCE_OF_ALL_KINDS, make_trace, with_count

from divtok.errors import EXIT_ERROR, EXIT_USAGE, DivtokError, UsageError
from divtok.records import EVIDENCE, PER_TOKEN_FIELDS, Confidence, Evidence, Statement, Trace
from divtok.registry import Registry
from divtok.score import (
    ESTIMATORS,
    Estimator,
    bind_parameters,
    check_parameter,
    score_evidence,
    score_trace,
)
from divtok.score import registry as register_estimator
from divtok.score import registry as score_registry
from divtok.score.registry import EstimatorFunction


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Registry[Estimator]:
    """A registry of the test's own, so that nothing it adds stays."""
    registry: Registry[Estimator] = Registry("estimator", entry_point_group="divtok.estimators")
    monkeypatch.setattr(score_registry, "ESTIMATORS", registry)
    announce(monkeypatch)
    return registry


def announce(monkeypatch: pytest.MonkeyPatch, *points: Any) -> None:
    """Puts these in the place of the entry points that are installed."""

    def entry_points(*, group: str) -> list[Any]:
        assert group == "divtok.estimators"
        return list(points)

    monkeypatch.setattr("divtok.registry.entry_points", entry_points)


def constant(value: float) -> EstimatorFunction:
    def function(trace: Trace) -> float:
        return value

    return function


def test_the_estimators_that_come_with_the_package() -> None:
    needs = {spec.name: spec.needs for spec in ESTIMATORS}
    assert needs == {
        "nsl": ("logprob_p",),
        "mean_prob": ("logprob_p",),
        "entropy": ("entropy_p",),
        "dtc_lin": ("jsd_bits",),
        "dtc_prod": ("jsd_bits", "logprob_p"),
        "count": ("jsd_bits",),
        "ratio": ("jsd_bits",),
        "length": ("jsd_bits",),
        "relevance": ("logprob_p", "relevance"),
        "basecal": ("base",),
        "basecal_proj": ("projected",),
        "sampled_nsl": ("sampled",),
        "sampled_mean_prob": ("sampled",),
        "uqac_attn": ("logprob_p", "chain"),
        "uqac_sim": ("logprob_p", "chain"),
        "uqac_mean": ("logprob_p", "chain"),
        "uqac_global": ("logprob_p", "chain"),
        "verbalized": ("statement",),
        "verbalized_dtc": ("jsd_bits", "statement"),
        "prm": ("rewards",),
    }
    assert {s.name for s in ESTIMATORS if s.ranking_only} == {"count", "ratio", "length"}
    assert {s.name for s in ESTIMATORS if not s.bounded} == {"count", "ratio", "length", "entropy"}
    assert all(spec.summary.endswith(".") for spec in ESTIMATORS)


def test_the_parameters_have_the_papers_values() -> None:
    assert ESTIMATORS.get("dtc_lin").parameters == {"theta": None, "n": 10, "a": 0.95, "b": 0.05}
    assert ESTIMATORS.get("dtc_prod").parameters == {"theta": None, "k": 4}
    assert ESTIMATORS.get("nsl").parameters == {}


def test_an_estimator_reads_only_what_it_needs() -> None:
    """Whatever else a trace lacks, an estimator's value is the same."""
    full = make_trace([0.9, 0.1, 0.6], prob=[0.5, 0.25, 1.0], entropy=[0.1, 0.2, 0.3])
    for spec in ESTIMATORS:
        parameters = bind_parameters(spec, {"theta": 0.5, "c_global": 0.5})
        spoilt = {
            name: getattr(full, name) if name in spec.needs else getattr(full, name) * math.nan
            for name in PER_TOKEN_FIELDS
        }
        scores = [
            score_evidence(spec, "k", trace, EVIDENCE_OF_ALL_KINDS, parameters)
            for trace in (full, make_trace([0] * 3, **spoilt))
        ]
        assert scores[0] == scores[1]
        assert scores[0].value is not None


def test_an_unknown_estimator_is_explained() -> None:
    with pytest.raises(UsageError, match=r"Unknown estimator 'dtc_line'\. Did you mean") as caught:
        ESTIMATORS.get("dtc_line")
    assert "'dtc_lin'" in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE
    with pytest.raises(
        UsageError, match=r"Unknown estimator 'zzz'\. Known: basecal, basecal_proj, count,"
    ):
        ESTIMATORS.get("zzz")


def test_a_need_that_no_trace_has_is_refused_when_registered(
    own_registry: Registry[Estimator],
) -> None:
    with pytest.raises(UsageError, match=r"'mine' needs 'jsd_bit', which.*Did you mean 'jsd_bits'"):
        register_estimator("mine", needs=("logprob_p", "jsd_bit"))
    assert own_registry.names() == []


def test_a_name_is_taken_once(own_registry: Registry[Estimator]) -> None:
    register_estimator("mine", needs=())(constant(0.0))
    with pytest.raises(UsageError, match=r"The estimator 'mine' is registered twice"):
        register_estimator("mine", needs=())(constant(1.0))
    assert own_registry.get("mine").function(make_trace([0.1])) == 0.0


def test_registering_leaves_the_function_as_it_is(own_registry: Registry[Estimator]) -> None:
    def mine(trace: Trace, *, k: int = 3, mode: str = "x", level: float) -> float:
        """What it does.

        And more.
        """
        return 0.5

    assert register_estimator("mine", needs=("kl_pq",))(mine) is mine
    spec = own_registry.get("mine")
    assert spec == Estimator(
        name="mine",
        function=mine,
        needs=("kl_pq",),
        parameters={"k": 3, "mode": "x", "level": None},
        bounded=True,
        ranking_only=False,
        summary="What it does.",
    )


def test_parameters_are_bound_from_what_is_given_and_the_defaults() -> None:
    given = {"theta": 0.3, "n": 7, "k": 9, "unheard_of": 1}
    assert bind_parameters(ESTIMATORS.get("dtc_lin"), given) == {
        "theta": 0.3,
        "n": 7,
        "a": 0.95,
        "b": 0.05,
    }
    assert bind_parameters(ESTIMATORS.get("dtc_prod"), given) == {"theta": 0.3, "k": 9}
    assert bind_parameters(ESTIMATORS.get("length"), given) == {}


def test_a_parameter_without_default_must_be_given() -> None:
    with pytest.raises(
        UsageError, match=r"'dtc_lin' needs a value for 'theta'.*score\.theta=VALUE"
    ):
        bind_parameters(ESTIMATORS.get("dtc_lin"), {"n": 3})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("theta", 2, "theta must be between 0 and 1, not 2"),
        ("theta", -0.01, "theta must be between 0 and 1, not -0.01"),
        ("theta", math.nan, "theta must be between 0 and 1, not nan"),
        ("theta", math.inf, "theta must be between 0 and 1, not inf"),
        ("theta", "0.5", "theta must be between 0 and 1, not 0.5"),
        ("theta", True, "theta must be between 0 and 1, not True"),
        ("a", 1.5, "a must be between 0 and 1, not 1.5"),
        ("b", -1, "b must be between 0 and 1, not -1"),
        ("b", math.nan, "b must be between 0 and 1, not nan"),
        ("n", 0, "n must be at least 1, not 0"),
        ("n", math.inf, "n must be at least 1, not inf"),
        ("k", -1, "k must be at least 0, not -1"),
        ("k", math.nan, "k must be at least 0, not nan"),
        ("their_own", math.nan, "their_own must be finite, not nan"),
        ("their_own", -math.inf, "their_own must be finite, not -inf"),
    ],
)
def test_a_parameter_out_of_range_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_parameter(name, value)
    assert caught.value.what == message + "."
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    ("name", "value"),
    [("theta", 0), ("theta", 1.0), ("n", 1), ("k", 0), ("their_own", -7), ("their_own", "text")],
)
def test_the_ends_of_a_range_are_in_it(name: str, value: Any) -> None:
    check_parameter(name, value)


def test_a_bad_parameter_is_refused_when_bound() -> None:
    for given in ({"theta": 2}, {"theta": math.nan}, {"theta": 0.5, "n": 0}):
        with pytest.raises(UsageError, match="must be"):
            bind_parameters(ESTIMATORS.get("dtc_lin"), given)


def test_a_score_says_what_made_it() -> None:
    spec = ESTIMATORS.get("dtc_lin")
    parameters = {"theta": 0.5, "n": 4, "a": 0.75, "b": 0.25}
    assert score_trace(spec, with_count(2), parameters) == Confidence(
        "k", "dtc_lin", parameters, 0.5
    )


@pytest.mark.parametrize("status", ["empty", "too_long", "nonfinite"])
def test_a_failed_trace_has_no_value_and_its_reason(status: Any) -> None:
    failed = make_trace(status=status, reason="9000 tokens, the limit is 8192")
    for spec in ESTIMATORS:
        parameters = bind_parameters(spec, {"theta": 0.5, "c_global": 0.5})
        confidence = score_evidence(spec, "k", failed, EVIDENCE_OF_ALL_KINDS, parameters)
        if not spec.needs_trace:
            assert confidence.value is not None
            continue
        assert confidence.value is None
        assert confidence.reason == f"{status}: 9000 tokens, the limit is 8192"
        assert (confidence.key, confidence.estimator) == ("k", spec.name)
        assert confidence.params == parameters


@pytest.mark.parametrize("value", [-0.001, 1.001, math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_confidence_is_refused(
    own_registry: Registry[Estimator], value: float
) -> None:
    register_estimator("mine", needs=())(constant(value))
    with pytest.raises(DivtokError, match=r"'mine' returned .* for trajectory k") as caught:
        score_trace(own_registry.get("mine"), make_trace([0.1]), {})
    assert caught.value.exit_code == EXIT_ERROR


@pytest.mark.parametrize("options", [{"bounded": False}, {"ranking_only": True}])
def test_unbounded_values_must_still_be_numbers(
    own_registry: Registry[Estimator], options: dict[str, bool]
) -> None:
    register_estimator("below", needs=(), **options)(constant(-12.0))
    register_estimator("nan", needs=(), **options)(constant(math.nan))
    assert score_trace(own_registry.get("below"), make_trace([0.1]), {}).value == -12.0
    with pytest.raises(DivtokError, match="returned nan"):
        score_trace(own_registry.get("nan"), make_trace([0.1]), {})


def test_another_package_can_bring_an_estimator(
    own_registry: Registry[Estimator], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []

    def load() -> None:
        loaded.append("once")

        @register_estimator("theirs", needs=("kl_pq",))
        def theirs(trace: Trace, *, scale: float = 0.5) -> float:
            return scale

    point = SimpleNamespace(name="theirs", value="their_package.estimators", load=load)
    announce(monkeypatch, point)
    spec = own_registry.get("theirs")
    assert score_trace(spec, make_trace([0.1]), bind_parameters(spec, {})).value == 0.5
    assert own_registry.names() == ["theirs"]
    assert loaded == ["once"]


@pytest.mark.parametrize("kind", EVIDENCE)
def test_missing_evidence_gives_no_value_and_says_which(kind: str) -> None:
    trace = make_trace([0.1, 0.2], prob=[0.5, 0.5])
    needing = [spec for spec in ESTIMATORS if kind in spec.evidence]
    assert needing
    without = dataclasses.replace(EVIDENCE_OF_ALL_KINDS, **{kind: None})
    for spec in needing:
        confidence = score_evidence(spec, "k", trace, without, {})
        assert (confidence.value, confidence.reason) == (None, f"{kind}: not gathered")


def test_evidence_that_failed_gives_its_reason() -> None:
    evidence = Evidence(statement=Statement(None, "no box"))
    confidence = score_evidence(ESTIMATORS.get("verbalized"), "k", None, evidence, {})
    assert (confidence.value, confidence.reason) == (None, "statement: no box")


def test_a_trajectory_without_a_trace_has_no_value_where_one_is_needed() -> None:
    confidence = score_evidence(ESTIMATORS.get("nsl"), "k", None, Evidence(), {})
    assert (confidence.value, confidence.reason) == (None, "not traced")


def test_evidence_is_handed_over_in_the_order_it_is_named(
    own_registry: Registry[Estimator],
) -> None:
    def both(statement: Any, rewards: Any, *, scale: float = 0.5) -> float:
        return scale * statement.value + len(rewards.rewards) / 100

    register_estimator("both", needs=("statement", "rewards"))(both)
    spec = own_registry.get("both")
    assert not spec.needs_trace
    parameters = bind_parameters(spec, {})
    confidence = score_evidence(spec, "k", None, EVIDENCE_OF_ALL_KINDS, parameters)
    assert confidence.value == 0.5 * 0.75 + 0.03
