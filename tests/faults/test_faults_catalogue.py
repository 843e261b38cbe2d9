"""Every fault of the catalogue has a test that carries its number."""

from __future__ import annotations

from tools import reliability


def test_every_fault_has_a_named_test():
    named = reliability.tests_by_fault()
    faults = reliability.catalogue()
    assert [fault.number for fault in faults] == list(range(1, 55))
    without = [fault.number for fault in faults if fault.outcome and fault.number not in named]
    assert without == []


def test_a_fault_without_an_outcome_has_no_test_yet():
    named = reliability.tests_by_fault()
    assert [f.number for f in reliability.catalogue() if not f.outcome and f.number in named] == []
