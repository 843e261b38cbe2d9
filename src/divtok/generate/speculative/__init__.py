"""Speculative sampling: a small model drafts, the generator checks, and both are recorded."""
