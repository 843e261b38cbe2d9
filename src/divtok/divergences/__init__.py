"""How far two next-token distributions are apart: the divergences, each one file in `kinds/`.

`divergence` says what a divergence is and holds the registry; `arithmetic` is what they share. It
knows distributions, not models.
"""
