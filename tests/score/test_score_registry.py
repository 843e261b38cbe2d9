"""Estimators by name: what they need, their parameters, and the one check of what they return."""

from __future__ import annotations

import math
from importlib.metadata import entry_points as installed
from types import SimpleNamespace
from typing import Any

import pytest
from score_samples import EVIDENCE_OF_ALL_KINDS, make_trace, with_count

from divtok.errors import EXIT_ERROR, EXIT_USAGE, DivtokError, UsageError
from divtok.records import PER_TOKEN_FIELDS, Confidence, Reason, Statement, Trace
from divtok.registry import Registry
from divtok.score import registry as score_registry
from divtok.score.registry import (
    ESTIMATORS,
    LAST,
    Estimator,
    EstimatorFunction,
    Learned,
    bind_parameters,
    check_parameter,
    in_order,
    is_column,
)
from divtok.score.registry import estimator as register_estimator
from divtok.score.scoring import score_evidence, score_trace


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Registry[Estimator]:
    """A registry of the test's own, so that nothing it adds stays."""
    registry: Registry[Estimator] = Registry("estimator", group="divtok.estimators")
    monkeypatch.setattr(score_registry, "ESTIMATORS", registry)
    announce(monkeypatch)
    return registry


def announce(monkeypatch: pytest.MonkeyPatch, *points: Any) -> None:
    """Puts these in the place of the estimators that installed packages announce."""

    def entry_points(*, group: str) -> list[Any]:
        return list(points) if group == "divtok.estimators" else list(installed(group=group))

    monkeypatch.setattr("divtok.registry.entry_points", entry_points)


def kind_of(confidence: Confidence) -> str:
    assert isinstance(confidence.reason, Reason)
    return confidence.reason.kind


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
        "cmp": ("logprob_q",),
        "cme": ("entropy_q",),
        "deepconf_group": ("entropy_p",),
        "deepconf_tail": ("entropy_p",),
        "self_certainty_reverse": ("entropy_p",),
        "dtc_lin": ("jsd_bits",),
        "dtc_prod": ("jsd_bits", "logprob_p"),
        "dtc_weighted": ("jsd_bits", "logprob_p"),
        "dtc_guarded": ("jsd_bits", "logprob_p", "logprob_q", "entropy_p", "entropy_q"),
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
    # Sources use these to weigh and to choose, and none of them has a scale.
    ranking = {spec.name for spec in ESTIMATORS if spec.ranking_only}
    assert ranking == {"deepconf_group", "deepconf_tail", "self_certainty_reverse"}
    unbounded = {spec.name for spec in ESTIMATORS if not spec.bounded}
    assert unbounded == {"entropy", "cme", *ranking}
    assert {spec.name for spec in ESTIMATORS if spec.supervised} == {"prm"}
    assert {spec.name for spec in ESTIMATORS if spec.learned is not None} == {"uqac_global"}
    assert all(spec.summary.endswith(".") for spec in ESTIMATORS)
    assert len({spec.label for spec in ESTIMATORS}) == len(needs)
    assert len({spec.order for spec in ESTIMATORS}) == len(needs)
    assert all(spec.order < LAST for spec in ESTIMATORS)
    assert {kind for spec in ESTIMATORS for kind in spec.evidence} == set(EVIDENCE_OF_ALL_KINDS)


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
        UsageError, match=r"Unknown estimator 'zzz'\. Known: basecal, basecal_proj, cme, cmp,"
    ):
        ESTIMATORS.get("zzz")


def test_a_need_that_no_trace_has_is_a_kind_of_evidence(own_registry: Registry[Estimator]) -> None:
    """Kinds of evidence may be registered later, so a need is only refused when a run starts."""
    register_estimator("mine", needs=("logprob_p", "jsd_bit"))(constant(0.5))
    spec = own_registry.get("mine")
    assert (spec.columns, spec.evidence, spec.needs_trace) == (("logprob_p",), ("jsd_bit",), True)
    found = score_trace(spec, make_trace([0.1]), {})
    assert (found.value, found.reason) == (None, "jsd_bit: not gathered")


def test_columns_are_those_of_traces_and_of_registered_divergences() -> None:
    assert all(is_column(name) for name in PER_TOKEN_FIELDS)
    assert not any(is_column(name) for name in EVIDENCE_OF_ALL_KINDS)
    assert not is_column("jsd")  # the name of a divergence, not of its column


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
        label="mine",
        order=LAST,
        supervised=False,
        ranges={},
        learned=None,
    )


def test_registering_keeps_what_is_said_about_an_estimator(
    own_registry: Registry[Estimator],
) -> None:
    learned = Learned(each=lambda trace: float(len(trace)), all=lambda found: {"level": max(found)})
    options: dict[str, Any] = {
        "label": "Mine",
        "order": 15,
        "supervised": True,
        "ranges": {"level": (0.0, 9.0)},
        "learned": learned,
    }

    @register_estimator("mine", needs=("jsd_bits",), **options)
    def mine(trace: Trace, *, level: float) -> float:
        return len(trace) / level

    spec = own_registry.get("mine")
    assert {name: getattr(spec, name) for name in options} == options
    # What is learned is bound as if it were given.
    traces = [make_trace([0.1]), make_trace([0.1] * 4)]
    parameters = bind_parameters(spec, learned.all([learned.each(trace) for trace in traces]))
    assert parameters == {"level": 4.0}
    assert [score_trace(spec, trace, parameters).value for trace in traces] == [0.25, 1.0]


def test_what_is_learned_must_be_in_range(own_registry: Registry[Estimator]) -> None:
    learned = Learned(each=lambda trace: 2.0, all=lambda found: {"theta": sum(found)})

    @register_estimator("mine", needs=("jsd_bits",), learned=learned)
    def mine(trace: Trace, *, theta: float) -> float:
        return theta

    with pytest.raises(UsageError, match="theta must be between 0 and 1, not 4"):
        bind_parameters(own_registry.get("mine"), learned.all([2.0, 2.0]))


def test_tables_show_estimators_by_their_place_and_then_by_name(
    own_registry: Registry[Estimator],
) -> None:
    for name, order in (("b", 2.0), ("z", 1.0), ("c", 1.5), ("a", 2.0)):
        register_estimator(name, needs=(), order=order)(constant(0.5))
    register_estimator("0", needs=())(constant(0.5))  # without a place, behind the others
    assert [spec.name for spec in in_order(own_registry)] == ["z", "c", "a", "b", "0"]
    assert [spec.name for spec in in_order(ESTIMATORS)][:3] == ["nsl", "mean_prob", "entropy"]
    assert in_order([]) == []


def test_parameters_are_bound_from_what_is_given_and_the_defaults() -> None:
    given = {"theta": 0.3, "n": 7, "k": 9, "unheard_of": 1}
    assert bind_parameters(ESTIMATORS.get("dtc_lin"), given) == {
        "theta": 0.3,
        "n": 7,
        "a": 0.95,
        "b": 0.05,
    }
    assert bind_parameters(ESTIMATORS.get("dtc_prod"), given) == {"theta": 0.3, "k": 9}
    assert bind_parameters(ESTIMATORS.get("nsl"), given) == {}


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


@pytest.fixture
def with_ranges(own_registry: Registry[Estimator]) -> Estimator:
    """Has parameters of its own, and one that it shares with others but limits further."""

    @register_estimator(
        "mine",
        needs=("jsd_bits",),
        ranges={"alpha": (-1.0, 1.0), "power": (2, math.inf), "theta": (0.25, 0.75)},
    )
    def mine(
        trace: Trace,
        *,
        theta: float,
        alpha: float = 0.5,
        power: int = 2,
        free: float = 0.0,
        mode: str = "mean",
    ) -> float:
        return alpha

    return own_registry.get("mine")


def test_parameters_of_ones_own_have_ranges_of_their_own(with_ranges: Estimator) -> None:
    defaults = {"alpha": 0.5, "power": 2, "free": 0.0, "mode": "mean"}
    assert bind_parameters(with_ranges, {"theta": 0.5}) == {"theta": 0.5, **defaults}
    given = {"theta": 0.25, "alpha": -1, "power": 10**6, "free": -7.5, "mode": "worst"}
    assert bind_parameters(with_ranges, given) == given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha": 1.01}, "alpha must be between -1 and 1, not 1.01"),
        ({"alpha": -1.01}, "alpha must be between -1 and 1, not -1.01"),
        ({"alpha": math.nan}, "alpha must be between -1 and 1, not nan"),
        ({"alpha": True}, "alpha must be between -1 and 1, not True"),
        ({"alpha": "0.5"}, "alpha must be between -1 and 1, not 0.5"),
        ({"power": 1}, "power must be at least 2, not 1"),
        ({"power": math.inf}, "power must be at least 2, not inf"),
        ({"theta": 0.2}, "theta must be between 0.25 and 0.75, not 0.2"),
        ({"free": math.inf}, "free must be finite, not inf"),
    ],
)
def test_a_parameter_of_ones_own_out_of_range_is_refused(
    with_ranges: Estimator, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        bind_parameters(with_ranges, {"theta": 0.5} | given)
    assert caught.value.what == message + "."


def test_a_range_is_that_of_one_estimator_alone(with_ranges: Estimator) -> None:
    assert bind_parameters(ESTIMATORS.get("dtc_lin"), {"theta": 0.2})["theta"] == 0.2
    check_parameter("alpha", 5.0)


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
        assert kind_of(confidence) == status
        assert (confidence.key, confidence.estimator) == ("k", spec.name)
        assert confidence.params == parameters


@pytest.mark.parametrize("value", [-0.001, 1.001, math.nan, math.inf, -math.inf])
def test_a_value_outside_the_scale_is_refused(
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

    dist = SimpleNamespace(name="their-package", version="2.1")
    value = "their_package.estimators"
    announce(
        monkeypatch, SimpleNamespace(name="theirs", value=value, attr="", dist=dist, load=load)
    )
    spec = own_registry.get("theirs")
    assert score_trace(spec, make_trace([0.1]), bind_parameters(spec, {})).value == 0.5
    assert own_registry.names() == ["theirs"]
    assert loaded == ["once"]
    assert own_registry.origin("theirs") == "their-package 2.1"


@pytest.mark.parametrize("kind", EVIDENCE_OF_ALL_KINDS)
def test_missing_evidence_gives_no_value_and_says_which(kind: str) -> None:
    trace = make_trace([0.1, 0.2], prob=[0.5, 0.5])
    needing = [spec for spec in ESTIMATORS if kind in spec.evidence]
    assert needing
    without = {name: found for name, found in EVIDENCE_OF_ALL_KINDS.items() if name != kind}
    for spec in needing:
        for evidence in (without, without | {kind: None}):
            confidence = score_evidence(spec, "k", trace, evidence, {})
            assert (confidence.value, confidence.reason) == (None, f"{kind}: not gathered")
            assert kind_of(confidence) == "not_gathered"


def test_evidence_that_failed_gives_its_reason() -> None:
    for why, kind in (("no box", "other"), (Reason("too_long", "no box"), "too_long")):
        evidence = {"statement": Statement(None, why)}
        confidence = score_evidence(ESTIMATORS.get("verbalized"), "k", None, evidence, {})
        assert (confidence.value, confidence.reason) == (None, "statement: no box")
        assert kind_of(confidence) == kind


def test_a_trajectory_without_a_trace_has_no_value_where_one_is_needed() -> None:
    confidence = score_evidence(ESTIMATORS.get("nsl"), "k", None, {}, {})
    assert (confidence.value, confidence.reason) == (None, "not traced")
    assert kind_of(confidence) == "not_traced"


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
