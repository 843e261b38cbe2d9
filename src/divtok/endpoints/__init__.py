"""Servers that speak the OpenAI protocol: how to reach one, ask it patiently, and ask it much.

`settings` says where a server is and how long to wait for it, `client` asks one thing until there
is an answer, `each` asks many things at a time. What is asked and what an answer means is known to
those who use it: `divtok.generate` and `divtok.trace`.
"""
