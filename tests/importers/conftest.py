"""Fixtures for tests of imports."""

from __future__ import annotations

from console import divtok

__all__ = ["divtok"]
