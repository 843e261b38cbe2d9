"""The comparison of estimators on benches: sets of traces and grades that are kept here, packed.

Not part of the package. `python -m bench` makes docs/estimators-compared.md from what is in
`data/`; no model is loaded.
"""
