"""Fixtures shared with the tests of trace/."""

from __future__ import annotations

from trace_fixtures import any_saved_pair, offline, saved_pair, tokenizer

__all__ = ["any_saved_pair", "offline", "saved_pair", "tokenizer"]
