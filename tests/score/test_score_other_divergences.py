"""Estimators of a divergence that not every trace has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from divergence_samples import HELLINGER, register_for_test
from score_samples import make_trace, numbers

from divtok.records import Confidence, Reason, Trace
from divtok.registry import Registry
from divtok.score import registry as score_registry
from divtok.score.registry import Estimator, estimator, exact_only, is_column
from divtok.score.scoring import score_trace


@pytest.fixture
def hellinger(monkeypatch: pytest.MonkeyPatch) -> Estimator:
    """One minus the mean Hellinger distance, where that divergence is registered."""
    registry: Registry[Estimator] = Registry("estimator", group="divtok.no_such_group")
    monkeypatch.setattr(score_registry, "ESTIMATORS", registry)
    register_for_test(monkeypatch, HELLINGER)

    @estimator("mean_hellinger", needs=("hellinger", "logprob_p"))
    def one_minus_mean(trace: Trace) -> float:
        return 1 - float(trace.others["hellinger"].mean(dtype=np.float64))

    return registry.get("mean_hellinger")


def without_value(found: Confidence) -> tuple[str, str]:
    """Kind and text of the reason."""
    assert found.value is None
    assert isinstance(found.reason, Reason)
    return found.reason.kind, str(found.reason)


def test_the_column_of_a_registered_divergence_is_one_of_the_trace(hellinger: Estimator) -> None:
    assert is_column("hellinger")
    assert (hellinger.columns, hellinger.evidence) == (("hellinger", "logprob_p"), ())
    assert hellinger.needs_trace


def test_an_unregistered_one_is_taken_for_evidence() -> None:
    assert not is_column("hellinger")
    assert "hellinger" not in exact_only()


def test_it_is_scored_where_it_was_traced(hellinger: Estimator) -> None:
    trace = make_trace([0.1, 0.1], others={"hellinger": numbers(0.25, 0.5)})
    found = score_trace(hellinger, trace, {})
    assert (found.value, found.reason) == (0.625, None)
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize("others", [{}, {"another": numbers(0.0, 0.0)}])
def test_a_trace_without_it_gives_a_reason(hellinger: Estimator, others: Any) -> None:
    found = score_trace(hellinger, make_trace([0.1, 0.1], others=others), {})
    assert without_value(found) == ("not_traced", "hellinger: not traced")


def test_a_failed_trace_has_its_own_reason(hellinger: Estimator) -> None:
    failed = make_trace(status="too_long", reason="9 tokens, 8 are read")
    found = without_value(score_trace(hellinger, failed, {}))
    assert found == ("too_long", "too_long: 9 tokens, 8 are read")


def test_bounds_on_the_jsd_say_nothing_about_it(hellinger: Estimator) -> None:
    assert "hellinger" in exact_only()
    assert hellinger.needs_exact
    bounds = {"jsd_low_bits": numbers(0.1), "jsd_high_bits": numbers(0.3)}
    served = make_trace([0.2], exact=False, **bounds)
    why = "hellinger: not known from a server's most likely tokens"
    assert without_value(score_trace(hellinger, served, {})) == ("not_exact", why)


def test_a_column_is_looked_up_by_its_name() -> None:
    trace = make_trace([0.25], others={"hellinger": numbers(0.5)})
    assert trace.per_token("jsd_bits") is trace.jsd_bits
    assert trace.per_token("hellinger") is trace.others["hellinger"]
    # Other fields of a trace are not columns of it.
    for name in ("key", "jsd_low_bits", "others", "missing"):
        assert trace.per_token(name) is None
