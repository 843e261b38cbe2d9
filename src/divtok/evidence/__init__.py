"""What estimators may need beside a trace, gathered from further passes, models or files.

`kind` says what a kind of evidence is, `kinds/` holds them, one file each, and `uqac/`, `prm` and
`projection` do the reading for some of them. Others are found through the entry-point group
`divtok.evidence`.
"""
