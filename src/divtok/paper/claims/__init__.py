"""The paper's claims, each with a rule and a verdict: it holds, does not hold, or is undecided.

`listed` has all of them in the paper's order; `table_claims` are records about tables, of which
`pilot`, `whitebox` and `blackbox` hold those of the paper; `counts`, `thetas` and `values` judge
what figures are drawn from.
"""
