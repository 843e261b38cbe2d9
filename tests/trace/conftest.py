"""Fixtures for tracing tests, and what cannot be tested without numba."""

from __future__ import annotations

from trace_fixtures import any_saved_pair, offline, saved_pair, tokenizer

from divtok.trace.kernels import cpu

__all__ = ["any_saved_pair", "offline", "saved_pair", "tokenizer"]

# Without numba there are no compiled loops to test.
collect_ignore = [] if cpu.available() else ["test_trace_kernels_cpu.py"]
