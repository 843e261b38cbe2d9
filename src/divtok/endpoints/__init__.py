"""Servers that speak the OpenAI protocol: how to reach one, ask it patiently, and ask it a lot.

`settings` says where a server is and how long to wait for it, `keys` whether a key goes with what
is asked, `connection` opens the way to it, `client` asks one thing until there is an answer, `many`
asks many things at a time, and `words` reads what a server says when it refuses. What is asked, and
what an answer means, is up to `divtok.generate` and `divtok.trace`.
"""
