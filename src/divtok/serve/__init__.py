"""Confidence as a service: many clients ask one process, which holds a pair and reads in batches.

`app` has the routes and `wire` what goes over them; `guard` and `connections` keep out what would
do harm; `batcher` is the one thread that uses the models; `scorer` asks it; `proxy` stands in front
of an OpenAI-compatible server. The numbers are those of `divtok.confidences`.
"""
