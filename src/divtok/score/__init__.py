"""From a trace, and what else is known, to a confidence: estimators, each a small pure function.

`registry` says what an estimator is, `estimators/` holds them, one file an idea, `sets` names
groups of them, and `scoring` asks one for a confidence. Others are found through the entry-point
group `divtok.estimators`.
"""
