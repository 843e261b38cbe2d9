"""Evaluations in; tables, figures and coloured trajectories out.

Knows how things look, never how they are computed: every number comes from `evaluate`. Matplotlib
is imported only when a figure is drawn.
"""
