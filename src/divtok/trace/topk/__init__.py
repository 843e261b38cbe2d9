"""Traces without weights: two servers report their most likely tokens, and bounds follow.

`answers` reads what a server says, `bounds` turns it into bounds on divergences, `alignment` makes
sure that the server means the same token as we do, and `server_pair` puts them together.
"""
