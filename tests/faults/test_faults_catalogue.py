"""Every fault of the catalogue has a test that carries its number."""

from __future__ import annotations

from tools.reliability import catalogue, tests_by_fault


def test_every_fault_has_a_named_test():
    named = tests_by_fault()
    faults = catalogue()
    assert [fault.number for fault in faults] == list(range(1, 55))
    without = [fault.number for fault in faults if fault.outcome and fault.number not in named]
    assert without == []


def test_a_fault_without_an_outcome_has_no_test_yet():
    named = tests_by_fault()
    assert [
        fault.number for fault in catalogue() if not fault.outcome and fault.number in named
    ] == []
