"""Weights for the responses in run/: a tenth for each of the last ten tokens."""

import json
from pathlib import Path

import polars as pl

rows = pl.read_parquet("run/trajectories/*.parquet").iter_rows(named=True)
with Path("weights.jsonl").open("w") as file:
    for row in rows:
        weights = [0] * (len(row["token_ids"]) - 10) + [0.1] * 10
        file.write(json.dumps({"key": row["key"], "weights": weights}) + "\n")
