"""Traces without weights: two servers report their most likely tokens, and bounds follow.

`asking` and `answers` know how servers are asked and what they say, `alignment` how far to trust
it, `known` and `bounds` what follows for divergences, and `server_pair` puts them together.
"""
